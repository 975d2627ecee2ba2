//! A collector goes on where its predecessor's snapshot ends, or knows that it cannot.
#![allow(clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests may panic")]

mod support;

use std::path::PathBuf;

use serde_json::json;
use support::engine::{FakeEngine, Replays, removed, stored, tokens};
use support::mirror::Mirror;
use support::{Collector, eventually};

const A: &str = "10.0.0.1:8000";

/// Where a test keeps its snapshots.
struct Place(PathBuf);

// === impl Place ===

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("warmroute-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("llama.snapshot")
    }

    async fn collector(&self, engine: &FakeEngine) -> Collector {
        // Only the end of a collector writes.
        let top = format!("snapshots: {{directory: '{}', interval_ms: 3600000}}", self.0.display());
        Collector::start_with(&top, &[engine.worker(A, true)], "replay_timeout_ms: 1000").await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn ready(collector: &Collector) {
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
}

async fn depth(collector: &Collector, blocks: &[u64]) -> u32 {
    Mirror::new(collector).depth(A, &tokens(blocks)).await
}

async fn counts(collector: &Collector) -> (f64, f64) {
    let count = async |outcome| collector.metric("snapshot_workers_total", outcome).await;
    (count("resumed").await, count("void").await)
}

/// An engine that has stored blocks 1, 2, 3 in two batches, and a collector that has seen it and has ended.
async fn seen(place: &Place) -> FakeEngine {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    engine.publish(json!([stored(None, &[1, 2])])).await;
    engine.publish(json!([stored(Some(2), &[3])])).await;
    let collector = place.collector(&engine).await;
    ready(&collector).await;
    assert_eq!(depth(&collector, &[1, 2, 3]).await, 3);
    assert_eq!(collector.metric("snapshot_loads_total", "absent").await, 1.0);
    collector.stop().await;
    assert!(place.file().is_file());
    engine.asked.lock().unwrap().clear();
    engine
}

#[tokio::test]
async fn a_successor_asks_for_what_it_has_missed_only() {
    let place = Place::new("resumes");
    let mut engine = seen(&place).await;
    // Without the snapshot the rest could not be known: the engine keeps but the last batch that was seen.
    engine.forget_all_but_the_last();
    engine.lose(&json!([removed(&[3]), stored(Some(2), &[7])]));
    let collector = place.collector(&engine).await;
    ready(&collector).await;
    assert_eq!((depth(&collector, &[1, 2, 7]).await, depth(&collector, &[1, 2, 3]).await), (3, 2));
    assert_eq!(engine.asked.lock().unwrap().first(), Some(&1));
    assert_eq!((counts(&collector).await, collector.metric("resets_total", "").await), ((1.0, 0.0), 0.0));
    // And so on, through the next snapshot.
    collector.stop().await;
    engine.forget_all_but_the_last();
    let collector = place.collector(&engine).await;
    ready(&collector).await;
    assert_eq!((depth(&collector, &[1, 2, 7]).await, counts(&collector).await), (3, (1.0, 0.0)));
    collector.stop().await;
}

#[tokio::test]
async fn an_engine_that_has_started_anew_and_counted_further_is_told_by_its_batch() {
    let place = Place::new("restarted");
    let mut engine = seen(&place).await;
    engine.restart_unnoticed();
    for block in [5, 6, 8] {
        engine.lose(&json!([stored(None, &[block])]));
    }
    let collector = place.collector(&engine).await;
    ready(&collector).await;
    assert_eq!((depth(&collector, &[1, 2, 3]).await, depth(&collector, &[5]).await), (0, 1));
    assert_eq!(counts(&collector).await, (0.0, 1.0));
    collector.stop().await;
}

#[tokio::test]
async fn an_engine_that_has_started_anew_and_not_counted_so_far_has_no_such_batch() {
    let place = Place::new("behind");
    let mut engine = seen(&place).await;
    engine.restart_unnoticed();
    engine.lose(&json!([stored(None, &[5])]));
    let collector = place.collector(&engine).await;
    ready(&collector).await;
    assert_eq!((depth(&collector, &[1, 2, 3]).await, depth(&collector, &[5]).await), (0, 1));
    assert_eq!(counts(&collector).await, (0.0, 1.0));
    collector.stop().await;
}

#[tokio::test]
async fn a_replay_that_does_not_reach_back_to_the_snapshot_makes_it_void() {
    let place = Place::new("too-late");
    let mut engine = seen(&place).await;
    engine.lose(&json!([removed(&[3])]));
    engine.forget();
    engine.lose(&json!([stored(None, &[5])]));
    let collector = place.collector(&engine).await;
    ready(&collector).await;
    assert_eq!((depth(&collector, &[1, 2, 3]).await, depth(&collector, &[5]).await), (0, 1));
    assert_eq!(counts(&collector).await, (0.0, 1.0));
    collector.stop().await;
}

#[tokio::test]
async fn nothing_of_a_snapshot_is_served_before_its_engine_has_answered() {
    let place = Place::new("unanswered");
    let engine = seen(&place).await;
    engine.set_replays(Replays::Never);
    let collector = place.collector(&engine).await;
    let (status, text) = collector.get("/readyz").await;
    assert_eq!((status, text.contains(A)), (503, true), "{text}");
    ready(&collector).await;
    assert_eq!((depth(&collector, &[1, 2, 3]).await, counts(&collector).await), (0, (0.0, 1.0)));
    // An engine that answers later is asked for everything.
    engine.set_replays(Replays::WithTopic);
    eventually("everything", async || depth(&collector, &[1, 2, 3]).await == 3).await;
    collector.stop().await;
}

/// A collector that ends before it has heard of an engine leaves what its own predecessor knew.
#[tokio::test]
async fn a_snapshot_outlives_a_collector_that_could_not_use_it() {
    let place = Place::new("outlives");
    let mut engine = seen(&place).await;
    engine.forget_all_but_the_last();
    engine.set_replays(Replays::Never);
    let collector = place.collector(&engine).await;
    assert_eq!(collector.get("/readyz").await.0, 503);
    collector.stop().await;
    engine.set_replays(Replays::WithTopic);
    let collector = place.collector(&engine).await;
    ready(&collector).await;
    assert_eq!((depth(&collector, &[1, 2, 3]).await, counts(&collector).await), (3, (1.0, 0.0)));
    collector.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_used_is_refused_and_counted_and_replaced() {
    let place = Place::new("damaged");
    let engine = seen(&place).await;
    let whole = std::fs::read(place.file()).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    for bytes in [&whole[..whole.len() / 2], &changed, b"", b"another program's"] {
        std::fs::write(place.file(), bytes).unwrap();
        let collector = place.collector(&engine).await;
        ready(&collector).await;
        assert_eq!(collector.metric("snapshot_loads_total", "refused").await, 1.0);
        assert_eq!((depth(&collector, &[1, 2, 3]).await, counts(&collector).await), (3, (0.0, 0.0)));
        collector.stop().await;
        assert_eq!(std::fs::read(place.file()).unwrap(), whole);
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_costs_the_snapshot_only() {
    let place = Place::new("unwritable");
    std::fs::write(&place.0, b"a file where the directory should be").unwrap();
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    engine.publish(json!([stored(None, &[1, 2])])).await;
    let collector = place.collector(&engine).await;
    ready(&collector).await;
    assert_eq!(depth(&collector, &[1, 2]).await, 2);
    collector.stop().await;
    std::fs::remove_file(&place.0).unwrap();
}
