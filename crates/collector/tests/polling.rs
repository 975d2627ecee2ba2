//! TensorRT-LLM, polled: each event is told once, so whatever does not arrive is lost.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::float_cmp,
    reason = "tests may panic"
)]

mod support;

use serde_json::json;
use support::engine::tokens;
use support::mirror::Mirror;
use support::trtllm::{Answers, FakeTrtLlm, created, removed, stored};
use support::{Collector, eventually};
use warmroute_routing::pool::WorkerState;

const A: &str = "10.0.0.1:8000";

async fn collector_of(engine: &FakeTrtLlm, ranks: u16) -> (Collector, Mirror) {
    let collector = Collector::start(&[engine.worker(A, ranks)], "engine: trtllm").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mirror = Mirror::new(&collector);
    (collector, mirror)
}

async fn depth_becomes(mirror: &mut Mirror, blocks: &[u64], depth: u32) {
    let what = format!("{blocks:?} at depth {depth}");
    eventually(&what, async || mirror.depth(A, &tokens(blocks)).await == depth).await;
}

#[tokio::test]
async fn follows_what_the_engine_tells() {
    let mut engine = FakeTrtLlm::start().await;
    engine.tell(&created());
    engine.tell(&stored(None, &[1, 2, 3]));
    let (collector, mut mirror) = collector_of(&engine, 1).await;
    depth_becomes(&mut mirror, &[1, 2, 3, 4], 3).await;
    engine.tell(&removed(&[3]));
    engine.tell_of(0, 64, &stored(None, &[1, 2, 3, 4]));
    engine.tell(&stored(Some(2), &[4]));
    depth_becomes(&mut mirror, &[1, 2, 4], 3).await;
    assert_eq!(mirror.depth(A, &tokens(&[1, 2, 3])).await, 2);
    engine.tell(&json!({"type": "updated", "block_hash": 3, "cache_level":
        {"type": "event_diff", "new_value": 1, "old_value": 0}, "priority": null}));
    eventually("moved", async || {
        let (_, explained) = collector.get("/v1/pools/llama/workers").await;
        let report: serde_json::Value = serde_json::from_str(&explained).unwrap();
        report["workers"][0]["blocks"] == json!({"gpu": 1, "cpu": 2, "disk": 0, "external": 0})
    })
    .await;
    assert_eq!(collector.metric("resets_total", "").await, 0.0);
    assert_eq!(collector.metric("skipped_events_total", "reason=\"other_attention\"").await, 1.0);
    collector.stop().await;
}

#[tokio::test]
async fn each_rank_is_a_worker_with_numbers_of_its_own() {
    let mut engine = FakeTrtLlm::start().await;
    engine.tell_of(0, 64, &stored(None, &[1]));
    engine.tell_of(1, 64, &stored(None, &[1, 2]));
    engine.tell_of(0, 64, &stored(Some(1), &[2, 3]));
    engine.tell_of(7, 64, &stored(None, &[9]));
    let (collector, mut mirror) = collector_of(&engine, 2).await;
    eventually("both", async || {
        mirror.catch_up().await;
        let depths = mirror.depths(&tokens(&[1, 2, 3]));
        [0, 1].map(|rank| depths.get(&(A.to_owned(), rank)).copied()) == [Some(3), Some(2)]
    })
    .await;
    assert_eq!(collector.metric("gaps_total", "").await, 0.0);
    collector.stop().await;
}

#[tokio::test]
async fn a_missing_number_voids_what_is_known() {
    let mut engine = FakeTrtLlm::start().await;
    engine.tell(&stored(None, &[1, 2, 3]));
    let (collector, mut mirror) = collector_of(&engine, 1).await;
    depth_becomes(&mut mirror, &[1, 2, 3], 3).await;
    engine.lose();
    engine.tell(&stored(None, &[1]));
    depth_becomes(&mut mirror, &[1, 2, 3], 1).await;
    assert_eq!(collector.metric("gaps_total", "outcome=\"unrecovered\"").await, 1.0);
    collector.stop().await;
}

#[tokio::test]
async fn an_answer_that_does_not_arrive_voids_what_is_known_and_one_that_was_not_given_does_not() {
    let mut engine = FakeTrtLlm::start().await;
    engine.tell(&stored(None, &[1, 2, 3]));
    let (collector, mut mirror) = collector_of(&engine, 1).await;
    depth_becomes(&mut mirror, &[1, 2, 3], 3).await;
    engine.answers(Answers::Unavailable);
    engine.tell(&stored(Some(3), &[4]));
    let down = async |mirror: &mut Mirror| {
        mirror.catch_up().await;
        mirror.state(A) == Some(WorkerState::Down)
    };
    eventually("down", async || down(&mut mirror).await).await;
    engine.answers(Answers::Whole);
    depth_becomes(&mut mirror, &[1, 2, 3, 4], 4).await;
    eventually("up", async || !down(&mut mirror).await).await;
    assert_eq!(collector.metric("resets_total", "").await, 0.0);
    engine.answers(Answers::Cut);
    engine.tell(&removed(&[4]));
    depth_becomes(&mut mirror, &[1, 2, 3, 4], 0).await;
    engine.answers(Answers::Whole);
    engine.tell(&stored(None, &[1]));
    depth_becomes(&mut mirror, &[1, 2], 1).await;
    collector.stop().await;
}

#[tokio::test]
async fn an_engine_that_starts_anew_is_known_by_its_numbers() {
    let mut engine = FakeTrtLlm::start().await;
    engine.tell(&created());
    engine.tell(&stored(None, &[1, 2, 3]));
    let (collector, mut mirror) = collector_of(&engine, 1).await;
    depth_becomes(&mut mirror, &[1, 2, 3], 3).await;
    engine.die().await;
    collector.metric_becomes("worker_connected", "", 0.0).await;
    engine.tell(&created());
    engine.come_back().await;
    depth_becomes(&mut mirror, &[1, 2, 3], 0).await;
    engine.tell(&stored(None, &[1, 2]));
    depth_becomes(&mut mirror, &[1, 2, 3], 2).await;
    assert_eq!(collector.metric("resets_total", "reason=\"restart\"").await, 1.0);
    assert!(engine.is_drained());
    collector.stop().await;
}

#[tokio::test]
async fn blocks_of_another_size_are_refused_loudly() {
    let mut engine = FakeTrtLlm::start().await;
    // The pool's blocks have 2 tokens, the engine's 1.
    let block = |hash: u64| json!({"block_hash": hash, "tokens": [{"token_id": hash}], "cache_level": 0});
    engine.tell(&json!({"type": "stored", "parent_hash": null, "blocks": [block(1), block(2)]}));
    let (collector, _) = collector_of(&engine, 1).await;
    collector.metric_becomes("worker_refused", "reason=\"block_size\"", 1.0).await;
    assert!(collector.get("/readyz").await.1.contains("blocks have 1 tokens"));
    collector.stop().await;
}
