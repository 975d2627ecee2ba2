//! What people may ask of a running collector, over HTTP and by the command line.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use std::process::{Command, Output};

use serde_json::{Value, json};
use support::engine::{FakeEngine, Replays, removed, stored, tokens};
use support::mirror::Mirror;
use support::{Collector, eventually};

const A: &str = "10.0.0.1:8000";
const B: &str = "10.0.0.2:8000";

/// Two workers: A holds blocks 1, 2 and, offloaded, 3; B holds 1.
async fn collector() -> (Collector, [FakeEngine; 2]) {
    let mut a = FakeEngine::start(Replays::WithTopic).await;
    let mut b = FakeEngine::start(Replays::WithTopic).await;
    let collector = Collector::start(&[a.worker(A, true), b.worker(B, true)], "base_models: [m]").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mut offloaded = stored(Some(2), &[3]);
    offloaded["medium"] = json!("CPU");
    a.publish(json!([stored(None, &[1, 2]), offloaded, stored(Some(9), &[10])])).await;
    b.publish(json!([stored(None, &[1]), removed(&[7])])).await;
    let mut mirror = Mirror::new(&collector);
    eventually("stored", async || {
        (mirror.depth(A, &tokens(&[1, 2, 3])).await, mirror.depth(B, &tokens(&[1])).await) == (3, 1)
    })
    .await;
    (collector, [a, b])
}

async fn cli(collector: &Collector, arguments: &[&str]) -> Output {
    let address = collector.url.trim_start_matches("http://");
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmroute-collector"));
    command.args(arguments).args(["--collector", address]);
    // The collector serves on this runtime meanwhile.
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test]
async fn workers_are_listed_with_what_they_hold() {
    let (collector, _engines) = collector().await;
    let (status, report) = collector.get("/v1/pools/llama/workers").await;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(status, 200);
    assert_eq!(
        (&report["engine"], &report["orphans"], &report["blocks"]),
        (&json!("vllm"), &json!(1), &json!(3))
    );
    let [a, b] = [&report["workers"][0], &report["workers"][1]];
    assert_eq!((&a["worker"], &a["state"], &a["connected"]), (&json!(A), &json!("up"), &json!(true)));
    assert_eq!(a["blocks"], json!({"gpu": 2, "cpu": 1, "disk": 0, "external": 0}));
    assert_eq!(b["blocks"], json!({"gpu": 1, "cpu": 0, "disk": 0, "external": 0}));
    let names = json!([{"group": 0, "names": {"gpu": 2, "cpu": 1, "disk": 0, "external": 0}}]);
    assert_eq!((&a["groups"], &a["orphans"], &a["unpublished"]), (&names, &json!(1), &json!(0)));
    assert_eq!(a["last_batch"], json!(0));
    assert!(report["memory_bytes_per_block"].as_u64().unwrap() > 50, "{report}");
    assert_eq!((&a["received"]["replays_complete"], &a["healthy"]), (&json!(1), &Value::Null));
    assert!(a["received"]["last_event_age_seconds"].as_f64().unwrap() < 20.0);
    assert_eq!(collector.get("/v1/pools/nowhere/workers").await.0, 404);

    let output = cli(&collector, &["inspect", "--json"]).await;
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["workers"][0]["blocks"], a["blocks"]);
    let output = cli(&collector, &["inspect", "--pool", "llama"]).await;
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("pool llama: vllm, ready, 3 blocks of 2 tokens"), "{table}");
    assert_eq!(table.lines().count(), 4, "{table}");
    let output = cli(&collector, &["inspect", "--pool", "nowhere"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no pool is named `nowhere`"));
    collector.stop().await;
}

#[tokio::test]
async fn a_prompt_is_explained_by_worker_tier_and_cost() {
    let (collector, _engines) = collector().await;
    let explain = async |question: Value| {
        let url = format!("{}/v1/pools/llama/explain", collector.url);
        let response = reqwest::Client::new().post(url).json(&question).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.ok())
    };
    let prompt = tokens(&[1, 2, 3, 4]);
    let (status, answer) = explain(json!({"tokens": prompt})).await;
    let answer = answer.unwrap();
    assert_eq!((status, &answer["blocks"]), (200, &json!(4)));
    let entry = |worker, gpu, any, cost| {
        let cached = json!({"gpu": gpu, "cpu": any, "disk": any, "external": any});
        json!({"worker": worker, "rank": 0, "state": "up", "cached_blocks": cached, "uncached_tokens": cost})
    };
    assert_eq!(answer["workers"], json!([entry(A, 2, 3, 2), entry(B, 1, 1, 6)]));
    // The base model's own name is none of an adapter; another is, and a salt too.
    let (_, named) = explain(json!({"tokens": prompt, "lora": "m"})).await;
    assert_eq!(named.unwrap()["workers"], answer["workers"]);
    for other in [json!({"tokens": prompt, "lora": "ad1"}), json!({"tokens": prompt, "salt": "s"})] {
        let (_, other) = explain(other).await;
        assert_eq!(other.unwrap()["workers"], json!([entry(A, 0, 0, 8), entry(B, 0, 0, 8)]));
    }
    assert_eq!(explain(json!({"tokens": ["x"]})).await.0, 422);
    assert_eq!(explain(json!({"tokens": [1], "tenant": "s"})).await.0, 422);

    let list = prompt.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let arguments = ["explain", "--pool", "llama", "--tokens", &list];
    let output = cli(&collector, &[&arguments[..], &["--json"]].concat()).await;
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), answer);
    let output = cli(&collector, &arguments).await;
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("pool llama: 8 tokens, 4 full blocks of 2\n"), "{table}");
    assert!(table.lines().nth(2).unwrap().starts_with(A), "{table}");
    collector.stop().await;
}
