//! The feed over HTTP.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod support;

use std::time::Duration;

use serde_json::json;
use support::engine::{FakeEngine, Replays, removed, stored, tokens};
use support::mirror::Mirror;
use support::{Collector, eventually};

const A: &str = "10.0.0.1:8000";

async fn ready_collector(engine: &FakeEngine) -> Collector {
    let collector = Collector::start(&[engine.worker(A, true)], "replay_timeout_ms: 1000").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    collector
}

#[tokio::test]
async fn a_mirror_that_follows_the_cursor_equals_a_fresh_copy() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let collector = ready_collector(&engine).await;
    let mut mirror = Mirror::new(&collector);
    mirror.max_bytes = 200; // a few pages an answer
    // Enough blocks that the first number of pages is outgrown, several times.
    for round in 0..60_u64 {
        let first = round * 20 + 1;
        let blocks: Vec<_> = (first..first + 20).collect();
        let mut events = vec![stored(None, &blocks)];
        if round % 3 == 2 {
            events.push(removed(&[first - 10, first - 30]));
        }
        engine.publish(json!(events)).await;
        mirror.poll(0).await.unwrap();
    }
    let last: Vec<_> = (59 * 20 + 1..=60 * 20).collect();
    eventually("the last round", async || mirror.depth(A, &tokens(&last)).await == 20).await;
    let mut fresh = Mirror::new(&collector);
    fresh.catch_up().await;
    assert_eq!(mirror.cursor, fresh.cursor);
    let content = mirror.content();
    assert_eq!(content, fresh.content());
    // Every third round cuts the ends off two chains.
    assert_eq!(content.len(), 60 * 20 - 20 * 20);
    assert!(fresh.pool.as_ref().unwrap().page_bits.page_count() > 4);
}

#[tokio::test]
async fn a_long_poll_ends_with_the_first_change() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let collector = ready_collector(&engine).await;
    let mut mirror = Mirror::new(&collector);
    mirror.catch_up().await;
    let before = mirror.cursor;
    let polling = tokio::spawn(async move {
        let pages = mirror.poll(60_000).await;
        (mirror, pages)
    });
    // Whether the poll has begun to wait does not matter: it must end with a change, before or after.
    eventually("an answer", async || {
        engine.publish(json!([stored(None, &[1])])).await;
        polling.is_finished()
    })
    .await;
    let (mirror, pages) = polling.await.unwrap();
    assert!(pages.unwrap() > 0);
    assert!(mirror.cursor.position > before.position);
}

#[tokio::test]
async fn a_long_poll_without_a_change_ends_with_its_time() {
    let engine = FakeEngine::start(Replays::WithTopic).await;
    let collector = ready_collector(&engine).await;
    let mut mirror = Mirror::new(&collector);
    mirror.catch_up().await;
    let (cursor, start) = (mirror.cursor, std::time::Instant::now());
    assert_eq!(mirror.poll(300).await, Ok(0));
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(mirror.cursor, cursor);
}

#[tokio::test]
async fn stopping_ends_long_polls() {
    let engine = FakeEngine::start(Replays::WithTopic).await;
    let collector = ready_collector(&engine).await;
    let mut mirror = Mirror::new(&collector);
    mirror.catch_up().await;
    let start = std::time::Instant::now();
    let polling = tokio::spawn(async move { mirror.poll(60_000).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    collector.stop().await;
    // The poll was answered, or refused if it came after the stop.
    let _ = polling.await;
    assert!(start.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn another_generation_begins_a_full_copy() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    engine.publish(json!([stored(None, &[1, 2])])).await;
    let collector = ready_collector(&engine).await;
    let mut mirror = Mirror::new(&collector);
    mirror.catch_up().await;
    let complete = mirror.cursor;
    mirror.cursor.generation.0 -= 1;
    assert!(mirror.poll(60_000).await.unwrap() > 0);
    assert_eq!(mirror.cursor, complete);
}

#[tokio::test]
async fn a_pool_that_has_not_heard_its_engines_is_not_ready() {
    let engine = FakeEngine::start(Replays::Never).await;
    let collector = Collector::start(&[engine.worker(A, true)], "replay_timeout_ms: 60000").await;
    let (status, body) = collector.get("/readyz").await;
    assert_eq!(status, 503);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({"ready": false, "pools": {"llama": {"ready": false, "missing": [format!("{A}/0")]}}})
    );
    let query = "generation=0&position=0&page=0&wait_ms=0&max_bytes=1000";
    let response = reqwest::get(format!("{}/v1/pools/llama/feed?{query}", collector.url)).await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(collector.get("/healthz").await.0, 200);
    assert_eq!(collector.get("/nothing").await.0, 404);
}

#[tokio::test]
async fn bad_requests_are_told_what_is_bad() {
    let engine = FakeEngine::start(Replays::WithTopic).await;
    let collector = ready_collector(&engine).await;
    assert_eq!(collector.get("/v1/pools/other/feed").await.0, 404);
    for (query, field) in [
        ("", "generation"),
        ("?generation=x", "generation"),
        ("?generation=1&position=1&page=0&wait_ms=0", "max_bytes"),
        ("?generation=1&position=1&page=0&wait_ms=0&max_bytes=1&colour=2", "colour"),
    ] {
        let (status, body) = collector.get(&format!("/v1/pools/llama/feed{query}")).await;
        assert_eq!(status, 400);
        assert!(body.contains(field), "{body}");
    }
}
