//! The running collector and fake engines: each batch is applied once and in order, or the worker is reset.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::float_cmp,
    reason = "tests may panic"
)]

mod support;

use serde_json::{Value, json};
use support::engine::{FakeEngine, Replays, removed, stored, tokens};
use support::mirror::Mirror;
use support::proxy::Proxy;
use support::{Collector, eventually};
use tokio::sync::mpsc;
use warmroute_collector::engine::{News, Source, Stream, Subscriber, Update};
use warmroute_collector::metrics::Metrics;
use warmroute_routing::pool::WorkerState;
use warmroute_wire::Engine;

const A: &str = "10.0.0.1:8000";
const B: &str = "10.0.0.2:8000";

/// A collector of one engine, ready, and in step with the engine's live stream.
async fn collector_of(engine: &mut FakeEngine, with_replay: bool) -> (Collector, Mirror) {
    let collector = Collector::start(&[engine.worker(A, with_replay)], "replay_timeout_ms: 1000").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    // A publisher drops what it sends before it has heard of a subscription: until then nothing that matters is sent.
    let before = collector.metric("frames_total", "").await;
    eventually("a live message", async || {
        engine.publish(json!([])).await;
        collector.metric("frames_total", "").await > before
    })
    .await;
    let mirror = Mirror::new(&collector);
    (collector, mirror)
}

async fn depth_becomes(mirror: &mut Mirror, blocks: &[u64], depth: u32) {
    eventually(&format!("{blocks:?} at depth {depth}"), async || {
        mirror.depth(A, &tokens(blocks)).await == depth
    })
    .await;
}

fn batch(events: &[Value]) -> Value {
    json!(events)
}

#[tokio::test]
async fn starts_with_what_the_engine_has_published_before() {
    for replays in [Replays::WithTopic, Replays::WithoutTopic] {
        let mut engine = FakeEngine::start(replays).await;
        engine.publish(batch(&[stored(None, &[1, 2])])).await;
        engine.publish(batch(&[stored(Some(2), &[3]), removed(&[9])])).await;
        let (collector, mut mirror) = collector_of(&mut engine, true).await;
        depth_becomes(&mut mirror, &[1, 2, 3, 4], 3).await;
        engine.publish(batch(&[stored(Some(3), &[4])])).await;
        depth_becomes(&mut mirror, &[1, 2, 3, 4], 4).await;
        assert_eq!(engine.asked.lock().unwrap().first(), Some(&0));
        assert_eq!(collector.metric("resets_total", "").await, 0.0);
        assert_eq!(collector.metric("replays_total", "complete").await, 1.0);
        collector.stop().await;
    }
}

#[tokio::test]
async fn a_gap_is_closed_by_a_replay() {
    for replays in [Replays::WithTopic, Replays::WithoutTopic] {
        let mut engine = FakeEngine::start(replays).await;
        let (collector, mut mirror) = collector_of(&mut engine, true).await;
        engine.publish(batch(&[stored(None, &[1, 2, 3])])).await;
        depth_becomes(&mut mirror, &[1, 2, 3, 4], 3).await;
        engine.lose(&batch(&[removed(&[3])]));
        engine.lose(&batch(&[stored(Some(2), &[7])]));
        engine.publish(batch(&[stored(Some(7), &[8])])).await;
        depth_becomes(&mut mirror, &[1, 2, 7, 8], 4).await;
        depth_becomes(&mut mirror, &[1, 2, 3], 2).await;
        collector.metric_becomes("gaps_total", "\"recovered", 1.0).await;
        assert_eq!(collector.metric("resets_total", "").await, 0.0);
    }
}

#[tokio::test]
async fn a_gap_without_a_replay_clears_the_worker() {
    let mut engine = FakeEngine::start(Replays::Never).await;
    let (collector, mut mirror) = collector_of(&mut engine, false).await;
    engine.publish(batch(&[stored(None, &[1, 2])])).await;
    depth_becomes(&mut mirror, &[1, 2], 2).await;
    engine.lose(&batch(&[removed(&[2])]));
    engine.publish(batch(&[stored(None, &[5]), stored(Some(2), &[3])])).await;
    depth_becomes(&mut mirror, &[5], 1).await;
    // What was known is void, and a block whose parent is not known waits for it.
    depth_becomes(&mut mirror, &[1, 2, 3], 0).await;
    engine.publish(batch(&[stored(None, &[1, 2])])).await;
    depth_becomes(&mut mirror, &[1, 2, 3], 3).await;
    assert_eq!(collector.metric("gaps_total", "unrecovered").await, 1.0);
    assert_eq!(collector.metric("resets_total", "gap").await, 1.0);
}

#[tokio::test]
async fn a_gap_that_the_engine_has_forgotten_clears_the_worker() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let (collector, mut mirror) = collector_of(&mut engine, true).await;
    engine.publish(batch(&[stored(None, &[1])])).await;
    depth_becomes(&mut mirror, &[1], 1).await;
    engine.lose(&batch(&[removed(&[1])]));
    engine.lose(&batch(&[]));
    engine.forget();
    engine.publish(batch(&[stored(None, &[5])])).await;
    depth_becomes(&mut mirror, &[5], 1).await;
    depth_becomes(&mut mirror, &[1], 0).await;
    assert_eq!(collector.metric("gaps_total", "unrecovered").await, 1.0);
}

#[tokio::test]
async fn numbers_that_begin_anew_are_a_restart() {
    for with_replay in [true, false] {
        let mut engine = FakeEngine::start(Replays::WithTopic).await;
        let (collector, mut mirror) = collector_of(&mut engine, with_replay).await;
        engine.publish(batch(&[stored(None, &[1, 2])])).await;
        depth_becomes(&mut mirror, &[1, 2], 2).await;
        engine.restart_unnoticed();
        engine.publish(batch(&[stored(None, &[5])])).await;
        depth_becomes(&mut mirror, &[5], 1).await;
        depth_becomes(&mut mirror, &[1, 2], 0).await;
        assert_eq!(collector.metric("resets_total", "restart").await, 1.0);
    }
}

#[tokio::test]
async fn an_engine_that_dies_is_down_and_its_successor_begins_empty() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let (collector, mut mirror) = collector_of(&mut engine, true).await;
    engine.publish(batch(&[stored(None, &[1, 2])])).await;
    depth_becomes(&mut mirror, &[1, 2], 2).await;
    assert_eq!(mirror.state(A), Some(WorkerState::Up));
    engine.die().await;
    eventually("down", async || {
        mirror.catch_up().await;
        mirror.state(A) == Some(WorkerState::Down)
    })
    .await;
    engine.come_back().await;
    eventually("up", async || {
        mirror.catch_up().await;
        mirror.state(A) == Some(WorkerState::Up)
    })
    .await;
    // It has published nothing yet: what its predecessor held is gone all the same.
    depth_becomes(&mut mirror, &[1, 2], 0).await;
    assert_eq!(collector.metric("workers_up", "").await, 1.0);
}

#[tokio::test]
async fn a_replay_that_never_answers_holds_nothing_up_for_ever() {
    let mut engine = FakeEngine::start(Replays::Never).await;
    engine.publish(batch(&[stored(None, &[1])])).await;
    let (collector, mut mirror) = collector_of(&mut engine, true).await;
    engine.publish(batch(&[stored(None, &[5])])).await;
    depth_becomes(&mut mirror, &[5], 1).await;
    assert!(collector.metric("replays_total", "failed").await >= 1.0);
    // Once it answers, the worker has all that the engine still has.
    engine.set_replays(Replays::WithTopic);
    depth_becomes(&mut mirror, &[1], 1).await;
    depth_becomes(&mut mirror, &[5], 1).await;
}

#[tokio::test]
async fn what_comes_during_a_replay_is_applied_after_it() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let (_collector, mut mirror) = collector_of(&mut engine, true).await;
    engine.set_replays(Replays::Never);
    engine.lose(&batch(&[stored(None, &[1])]));
    engine.publish(batch(&[stored(Some(1), &[2])])).await; // a gap: the replay does not answer
    for block in 3..50 {
        engine.publish(batch(&[stored(Some(block - 1), &[block])])).await;
    }
    engine.publish(batch(&[stored(None, &[60])])).await;
    depth_becomes(&mut mirror, &[60], 1).await;
    // The retry finds the rest.
    engine.set_replays(Replays::WithTopic);
    let chain: Vec<_> = (1..50).collect();
    depth_becomes(&mut mirror, &chain, 49).await;
}

#[tokio::test]
async fn nonsense_on_the_wire_costs_only_itself() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let (collector, mut mirror) = collector_of(&mut engine, true).await;
    engine.send_raw(&[b"lonely"]).await;
    engine.send_raw(&[b"topic", b"short", b"x"]).await;
    engine.publish(json!("no list")).await;
    engine.publish(batch(&[json!({"type": "BlockStored"}), json!(5), stored(None, &[1])])).await;
    depth_becomes(&mut mirror, &[1], 1).await;
    assert_eq!(collector.metric("undecodable_frames_total", "").await, 3.0);
    assert_eq!(collector.metric("bad_events_total", "").await, 2.0);
    // Blocks of another size are refused, and seen.
    let mut other = stored(None, &[9]);
    other["block_size"] = json!(1);
    other["block_hashes"] = json!([10, 11]);
    engine.publish(batch(&[other])).await;
    collector.metric_becomes("bad_events_total", "block_size", 1.0).await;
}

#[tokio::test]
async fn blocks_without_what_comes_before_them_are_seen() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let collector = Collector::start(&[engine.worker(A, true)], "max_orphans: 2").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    eventually("a live message", async || {
        engine.publish(json!([])).await;
        collector.metric("frames_total", "").await > 0.0
    })
    .await;
    // Their parents were never told, and one of them has to make room.
    engine.publish(batch(&[stored(Some(90), &[10]), stored(Some(91), &[11]), stored(Some(92), &[12])])).await;
    collector.metric_becomes("event_blocks_total", "outcome=\"orphaned\"", 3.0).await;
    assert_eq!(collector.metric("event_blocks_total", "outcome=\"dropped_orphan\"").await, 1.0);
    assert_eq!(collector.metric("orphans", "").await, 2.0);
    // A hole: what is behind it is held, and not published.
    engine.publish(batch(&[stored(None, &[1, 2, 3]), removed(&[1])])).await;
    collector.metric_becomes("unpublished", "", 2.0).await;
    engine.publish(batch(&[stored(None, &[1])])).await;
    collector.metric_becomes("unpublished", "", 0.0).await;
    engine.publish(batch(&[stored(None, &[91])])).await;
    collector.metric_becomes("event_blocks_total", "outcome=\"attached\"", 1.0).await;
    assert_eq!(collector.metric("orphans", "").await, 1.0);
    collector.stop().await;
}

#[tokio::test]
async fn workers_are_kept_apart_and_one_that_is_missing_holds_nobody_up() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    engine.publish(batch(&[stored(None, &[1, 2])])).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let workers = [engine.worker(A, true), format!("{{address: '{B}', events: 'tcp://{nobody}'}}")];
    let collector = Collector::start(&workers, "").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mut mirror = Mirror::new(&collector);
    mirror.catch_up().await;
    let depths = mirror.depths(&tokens(&[1, 2]));
    assert_eq!(depths.into_iter().collect::<Vec<_>>(), [((A.to_owned(), 0), 2)]);
    // Nobody has ever been there: that may be a wrong endpoint, and is no reason not to send requests.
    assert_eq!(mirror.state(B), Some(WorkerState::Up));
    assert_eq!(collector.metric("workers_known", "").await, 2.0);
    assert_eq!(collector.metric("workers_up", "").await, 1.0);
}

/// The endpoints of two ranks: ports that follow each other.
fn free_ports() -> [String; 2] {
    loop {
        let first = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX && std::net::TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return [port, port + 1].map(|port| format!("tcp://127.0.0.1:{port}"));
        }
    }
}

#[tokio::test]
async fn each_rank_is_a_worker_of_its_own() {
    let (events, replay) = (free_ports(), free_ports());
    let mut engines = vec![];
    for rank in 0..2_u64 {
        let [events, replay] = [&events, &replay].map(|ports| &*ports[rank as usize]);
        let mut engine = FakeEngine::start_at(Replays::WithTopic, events, replay).await;
        let blocks: Vec<_> = (1..=2 + rank).collect();
        engine.publish(batch(&[stored(None, &blocks)])).await;
        engines.push(engine);
    }
    let [events, replay] = [&events, &replay].map(|ports| &ports[0]);
    let worker = format!("{{address: '{A}', events: '{events}', replay: '{replay}', data_parallel_size: 2}}");
    let collector = Collector::start(&[worker], "").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mut mirror = Mirror::new(&collector);
    mirror.catch_up().await;
    let mut depths: Vec<_> = mirror.depths(&tokens(&[1, 2, 3, 4])).into_iter().collect();
    depths.sort();
    assert_eq!(depths, [((A.to_owned(), 0), 2), ((A.to_owned(), 1), 3)]);
}

#[tokio::test]
async fn a_connection_that_is_dead_without_a_word_is_made_anew() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let proxy = Proxy::start(&engine.events).await;
    let source = Source {
        engine: Engine::Vllm,
        events: Stream::Dial(proxy.endpoint.parse().unwrap()),
        replay: Some(engine.replay.parse().unwrap()),
        last: None,
        replay_timeout: std::time::Duration::from_secs(5),
        silence: std::time::Duration::from_millis(100),
    };
    let (updates, mut inbox) = mpsc::channel(64);
    let metrics = Metrics::new().worker("llama", A, 0);
    let subscriber = tokio::spawn(Subscriber::new(0, A.to_owned(), source, updates, metrics).run());

    engine.publish(batch(&[stored(None, &[1])])).await;
    let is_events = |news: &News| matches!(news, News::Events(..));
    next(&mut inbox, is_events).await;
    proxy.freeze();
    engine.publish(batch(&[stored(None, &[2])])).await;
    // The connection is found dead, is made anew, and what it failed to bring comes by a replay, once.
    next(&mut inbox, |news| matches!(news, News::Connected(false))).await;
    next(&mut inbox, |news| matches!(news, News::Connected(true))).await;
    next(&mut inbox, is_events).await;
    engine.publish(batch(&[stored(None, &[3])])).await;
    next(&mut inbox, is_events).await;
    subscriber.abort();
}

/// The next news of a kind. A reset has no place in these tests.
async fn next(inbox: &mut mpsc::Receiver<Update>, is_it: impl Fn(&News) -> bool) {
    loop {
        let update = tokio::time::timeout(std::time::Duration::from_secs(20), inbox.recv()).await;
        let news = update.expect("news in time").expect("a subscriber that lives").news;
        assert!(!matches!(news, News::Reset(_)), "{news:?}");
        if is_it(&news) {
            return;
        }
    }
}

/// A store whose blocks have another size than the pool's 2 tokens.
fn stored_by_threes(hash: u64) -> Value {
    json!({"type": "BlockStored", "block_hashes": [hash], "parent_block_hash": null, "token_ids": [1, 1, 2],
        "block_size": 3, "lora_id": null, "medium": "GPU", "lora_name": null})
}

#[tokio::test]
async fn blocks_of_another_size_are_told_of_and_not_indexed() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let (collector, mut mirror) = collector_of(&mut engine, true).await;
    engine.publish(batch(&[stored_by_threes(70)])).await;
    collector.metric_becomes("worker_refused", "reason=\"block_size\"", 1.0).await;
    let (_, readiness) = collector.get("/readyz").await;
    assert!(readiness.contains("its blocks have 3 tokens, `block_size` says 2"), "{readiness}");
    assert_eq!(mirror.depth(A, &[1, 1, 2, 2]).await, 0);
    // An engine that has blocks of both sizes is indexed by those that fit: what does not is left out.
    engine.publish(batch(&[stored(None, &[1]), stored_by_threes(71)])).await;
    depth_becomes(&mut mirror, &[1, 2], 1).await;
    collector.metric_becomes("worker_refused", "", 0.0).await;
    collector.metric_becomes("bad_events_total", "reason=\"block_size\"", 2.0).await;
    collector.stop().await;
}

#[tokio::test]
async fn placeholders_of_an_offload_tier_are_copies_of_blocks_that_are_known() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let (collector, mut mirror) = collector_of(&mut engine, true).await;
    let offloaded = |hash: u64| {
        json!({"type": "BlockStored", "block_hashes": [hash], "parent_block_hash": null, "token_ids": [],
            "block_size": 0, "lora_id": null, "medium": "CPU", "lora_name": null})
    };
    engine.publish(batch(&[stored(None, &[1, 2]), offloaded(2), offloaded(3), offloaded(99)])).await;
    depth_becomes(&mut mirror, &[1, 2], 2).await;
    // Gone from the accelerator, still there in the host's memory; what was never known stays unknown.
    engine.publish(batch(&[removed(&[2, 1])])).await;
    collector.metric_becomes("event_blocks_total", "outcome=\"removed\"", 2.0).await;
    assert_eq!(mirror.depth(A, &tokens(&[1, 2])).await, 2);
    assert_eq!(collector.metric("event_blocks_total", "outcome=\"skipped\"").await, 1.0);
    engine.publish(batch(&[json!({"type": "BlockRemoved", "block_hashes": [3], "medium": "CPU"})])).await;
    depth_becomes(&mut mirror, &[1, 2], 1).await;
    assert_eq!(collector.metric("worker_refused", "").await, 0.0);
    collector.stop().await;
}

#[tokio::test]
async fn a_worker_that_is_taken_out_is_forgotten_and_one_that_stays_notices_nothing() {
    let mut a = FakeEngine::start(Replays::WithTopic).await;
    let mut b = FakeEngine::start(Replays::WithTopic).await;
    let workers = [a.worker(A, true), b.worker(B, true)];
    let collector = Collector::start(&workers, "").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mut mirror = Mirror::new(&collector);
    a.publish(batch(&[stored(None, &[1, 2])])).await;
    b.publish(batch(&[stored(None, &[1])])).await;
    eventually("both", async || {
        (mirror.depth(A, &tokens(&[1, 2])).await, mirror.depth(B, &tokens(&[1, 2])).await) == (2, 1)
    })
    .await;
    collector.reload(&workers[1..], "").await;
    mirror.catch_up().await;
    assert_eq!(mirror.state(A), None);
    assert_eq!((mirror.depth(A, &tokens(&[1])).await, mirror.depth(B, &tokens(&[1])).await), (0, 1));
    a.publish(batch(&[stored(None, &[7])])).await;
    b.publish(batch(&[stored(Some(1), &[2])])).await;
    eventually("one", async || mirror.depth(B, &tokens(&[1, 2])).await == 2).await;
    assert_eq!(mirror.depth(A, &tokens(&[7])).await, 0);
    assert_eq!(collector.metric("replays_total", &format!("worker=\"{B}\"")).await, 1.0);
    // It comes back, and its events are replayed.
    collector.reload(&workers, "").await;
    depth_becomes(&mut mirror, &[1, 2], 2).await;
    assert_eq!(mirror.depth(A, &tokens(&[7])).await, 1);
    collector.stop().await;
}
