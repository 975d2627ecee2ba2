//! Workers that the configuration does not list, and endpoints that it does not name.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::float_cmp,
    reason = "tests may panic"
)]

mod support;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use serde_json::{Value, json};
use support::engine::{FakeEngine, Replays, removed, stored, tokens};
use support::mirror::Mirror;
use support::{Collector, eventually};

/// What an engine's HTTP server answers: by path, a body.
type Answers = Arc<Mutex<Vec<(&'static str, String)>>>;

async fn serve(answers: &Answers) -> String {
    let answer = async |State(answers): State<Answers>, uri: Uri| {
        let answers = answers.lock().unwrap();
        let found = answers.iter().find(|(path, _)| *path == uri.path());
        found.map_or((StatusCode::SERVICE_UNAVAILABLE, String::new()), |(_, body)| {
            (StatusCode::OK, body.clone())
        })
    };
    let app = Router::new().fallback(answer).with_state(Arc::clone(answers));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

/// An endpoint as an engine writes it that listens at every address.
fn everywhere(endpoint: &str) -> String {
    endpoint.replace("127.0.0.1", "*")
}

fn sources(engine: &FakeEngine) -> (&'static str, String) {
    let rank: Value = json!({"enable_kv_cache_events": true, "publisher": "zmq", "topic": "",
        "endpoint": everywhere(&engine.events), "replay_endpoint": everywhere(&engine.replay)});
    ("/kv_event_sources", json!({"0": rank}).to_string())
}

/// Publishes nothing until the collector hears it.
async fn is_heard(engine: &mut FakeEngine, collector: &Collector, worker: &str) {
    let label = format!("worker=\"{worker}\"");
    let before = collector.metric("frames_total", &label).await;
    eventually("a live message", async || {
        engine.publish(json!([])).await;
        collector.metric("frames_total", &label).await > before
    })
    .await;
}

async fn depth_becomes(mirror: &mut Mirror, worker: &str, blocks: &[u64], depth: u32) {
    let what = format!("{blocks:?} at depth {depth}");
    eventually(&what, async || mirror.depth(worker, &tokens(blocks)).await == depth).await;
}

#[tokio::test]
async fn an_engine_says_where_it_publishes_once_it_has_started_and_after_it_has_moved() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    engine.publish(json!([stored(None, &[1, 2])])).await;
    let answers = Answers::default();
    let address = serve(&answers).await;
    let collector = Collector::start(&[format!("{{address: '{address}'}}")], "").await;
    // It is starting: the pool does not wait for it, and it is there.
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mut mirror = Mirror::new(&collector);
    mirror.catch_up().await;
    assert!(mirror.state(&address).is_some());
    let metrics = "vllm:cache_config_info{block_size=\"2\"} 1.0\n".to_owned();
    *answers.lock().unwrap() = vec![sources(&engine), ("/metrics", metrics)];
    depth_becomes(&mut mirror, &address, &[1, 2], 2).await;
    assert_eq!(collector.metric("worker_refused", "").await, 0.0);
    // Another process, at other ports.
    engine.die().await;
    let mut moved = FakeEngine::start(Replays::WithTopic).await;
    moved.publish(json!([stored(None, &[1])])).await;
    answers.lock().unwrap()[0] = sources(&moved);
    depth_becomes(&mut mirror, &address, &[1, 2], 1).await;
    collector.stop().await;
}

#[tokio::test]
async fn an_engine_whose_blocks_are_of_another_size_is_refused_before_it_says_anything() {
    let engine = FakeEngine::start(Replays::WithTopic).await;
    let (_, port) = engine.events.rsplit_once(':').unwrap();
    let kv_events = json!({"kv_events": {"endpoint_host": "0.0.0.0", "block_size": 64,
        "endpoint_port_base": port.parse::<u16>().unwrap()}});
    let answers = Answers::new(Mutex::new(vec![("/server_info", kv_events.to_string())]));
    let address = serve(&answers).await;
    let collector = Collector::start(&[format!("{{address: '{address}'}}")], "engine: sglang").await;
    collector.metric_becomes("worker_refused", "reason=\"block_size\"", 1.0).await;
    let (_, readiness) = collector.get("/readyz").await;
    assert!(readiness.contains("its blocks have 64 tokens, `block_size` says 2"), "{readiness}");
    collector.metric_becomes("worker_connected", "", 1.0).await;
    collector.stop().await;
}

/// A file that a test writes.
struct ListFile(PathBuf);

// === impl ListFile ===

impl ListFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("warmroute-{name}-{}.yaml", std::process::id())))
    }

    fn write(&self, text: &str) {
        // In one step, as an editor or a ConfigMap does.
        let draft = self.0.with_extension("draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(&draft, &self.0).unwrap();
    }
}

impl Drop for ListFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn workers_come_and_go_with_a_file_and_who_is_gone_is_heard_no_longer() {
    let (a, b) = ("10.0.0.1:8000", "[fd00::2]:8000");
    let mut one = FakeEngine::start(Replays::WithTopic).await;
    let mut two = FakeEngine::start(Replays::WithTopic).await;
    let list = ListFile::new("discovery");
    let options = format!("discover: {{file: '{}', interval_ms: 100}}", list.0.display());
    let collector = Collector::start(&[], &options).await;
    // It is not known who there is: an index without workers is not handed out.
    collector.metric_becomes("discovery_lookups_total", "outcome=\"failed\"", 1.0).await;
    assert_eq!(collector.get("/readyz").await.0, 503);
    list.write(&format!("[{}, {}]", one.worker(a, true), two.worker(b, true)));
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    is_heard(&mut one, &collector, a).await;
    is_heard(&mut two, &collector, b).await;
    let mut mirror = Mirror::new(&collector);
    one.publish(json!([stored(None, &[1])])).await;
    two.publish(json!([stored(None, &[1, 2])])).await;
    depth_becomes(&mut mirror, a, &[1, 2], 1).await;
    depth_becomes(&mut mirror, b, &[1, 2], 2).await;
    // What cannot be used changes nothing.
    let failed = collector.metric("discovery_lookups_total", "outcome=\"failed\"").await;
    list.write("[{address: nowhere}]");
    collector.metric_becomes("discovery_lookups_total", "outcome=\"failed\"", failed + 1.0).await;
    assert_eq!(mirror.depth(b, &tokens(&[1, 2])).await, 2);
    list.write(&format!("[{}]", one.worker(a, true)));
    eventually("gone", async || {
        mirror.catch_up().await;
        mirror.state(b).is_none()
    })
    .await;
    // The one that stays has noticed nothing, and what the other still says is nobody's.
    two.publish(json!([stored(Some(2), &[3]), removed(&[1])])).await;
    one.publish(json!([stored(Some(1), &[2])])).await;
    depth_becomes(&mut mirror, a, &[1, 2, 3], 2).await;
    assert_eq!(collector.metric("resets_total", "").await, 0.0);
    assert_eq!(mirror.content().iter().filter(|(_, holders)| holders.len() > 1).count(), 0);
    assert_eq!(collector.metric("worker_connected", &format!("worker=\"{b}\"")).await, 0.0);
    collector.stop().await;
}

#[tokio::test]
async fn every_address_of_a_name_is_a_worker() {
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    engine.publish(json!([stored(None, &[1, 2])])).await;
    let options = format!(
        "discover: {{dns: 'localhost:8000', events: '{}', replay: '{}'}}",
        everywhere(&engine.events),
        everywhere(&engine.replay)
    );
    let collector = Collector::start(&[], &options).await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mut mirror = Mirror::new(&collector);
    depth_becomes(&mut mirror, "127.0.0.1:8000", &[1, 2], 2).await;
    // Written as well, it is one and the same.
    let written =
        format!("{{address: '127.0.0.1:8000', events: '{}', replay: '{}'}}", engine.events, engine.replay);
    collector.reload(&[written], &options).await;
    depth_becomes(&mut mirror, "127.0.0.1:8000", &[1, 2], 2).await;
    assert_eq!(collector.metric("resets_total", "").await, 0.0);
    collector.stop().await;
}
