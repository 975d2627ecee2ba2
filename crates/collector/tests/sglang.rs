//! SGLang: what its own cache has done, and releases that are refused.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use serde_json::{Value, json};
use support::engine::{FakeEngine, Replays, stored, tokens};
use support::mirror::Mirror;
use support::{Collector, eventually};
use warmroute_collector::replay::{Options, replay};
use warmroute_wire::Engine;

const A: &str = "10.0.0.1:8000";

/// The depths of prompts after each operation on a recorded `RadixCache`, by the operation's name.
fn depths_after_operations(prompts: &[Value]) -> Vec<(String, Vec<u64>)> {
    let path = format!("{}/tests/data/sglang_radix_events.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut recording = String::new();
    let mut names = vec![];
    for (i, line) in lines.iter().enumerate() {
        recording += &format!("{line}\n");
        if line["kind"] == "op" {
            names.push(line["tag"].as_str().unwrap().to_owned());
        }
        // An operation's events follow it, if it has any.
        if lines.get(i + 1).is_none_or(|next| next["kind"] == "op") {
            for prompt in prompts {
                recording += &format!("{prompt}\n");
            }
        }
    }
    let mut answers = vec![];
    let options = Options { engine: Engine::Sglang, ..Options::default() };
    let summary = replay(recording.as_bytes(), &mut answers, options).unwrap();
    assert_eq!((summary.bad_events, summary.undecodable_frames, summary.unsupported), (0, 0, 0));
    let answers: Vec<u64> = std::str::from_utf8(&answers)
        .unwrap()
        .lines()
        .map(|line| {
            let answer: Value = serde_json::from_str(line).unwrap();
            answer["blocks"].as_array().unwrap().iter().map(|entry| entry["blocks"].as_u64().unwrap()).sum()
        })
        .collect();
    names.into_iter().zip(answers.chunks(prompts.len()).map(<[_]>::to_vec)).collect()
}

#[test]
fn depths_follow_what_the_radix_cache_has_done() {
    let path = format!("{}/tests/data/sglang_radix_events.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let prompt = |tag: &str| {
        let op = lines.iter().find(|line| line["tag"].as_str().is_some_and(|t| t.starts_with(tag))).unwrap();
        json!({"kind": "query", "tokens": op["tokens"], "salt": op["cache_salt"]})
    };
    let prompts = ["insert A 96", "insert B", "insert A with cache_salt", "insert bigram"].map(prompt);
    let depths = depths_after_operations(&prompts);
    let expected = [
        ("insert A 96 tokens page 16", [6, 3, 0, 0]),
        ("insert A again", [6, 3, 0, 0]),
        ("insert B shares 48 (node split)", [6, 6, 0, 0]),
        ("insert A with cache_salt", [6, 6, 6, 0]),
        // Copies of A's blocks under the same names: the events do not tell the key.
        ("insert A with extra_key", [6, 6, 6, 0]),
        ("insert bigram (EAGLE) 49 raw tokens = 48 bigrams", [6, 6, 6, 3]),
        // The plain A's tail is gone; the copies under the key are still there.
        ("evict 48 tokens", [6, 6, 6, 3]),
        ("evict 200 tokens", [0, 0, 0, 3]),
        ("reset (flush_cache)", [0, 0, 0, 0]),
        ("insert A after reset", [6, 3, 0, 0]),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(name, depths)| (name.to_string(), depths.to_vec())).collect();
    assert_eq!(depths, expected);
}

/// A collector of an engine that may be too old, once it has heard of it.
async fn collector_of(engine: &mut FakeEngine) -> (Collector, Mirror) {
    let collector = Collector::start(&[engine.worker(A, true)], "engine: sglang").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mirror = Mirror::new(&collector);
    (collector, mirror)
}

#[tokio::test]
async fn a_release_before_0_5_6_is_named_and_nothing_of_it_is_indexed() {
    let mut engine = FakeEngine::start(Replays::WithoutTopic).await;
    engine.publish(json!([stored(None, &[1, 2])])).await;
    let (collector, mut mirror) = collector_of(&mut engine).await;
    assert_eq!(mirror.depth(A, &tokens(&[1, 2])).await, 2);
    // python3 -c 'print(hash((3, 3)))'
    engine.publish(json!([["BlockStored", [5972319052856130739_i64], 3, [3, 3], 2, null]])).await;
    collector.metric_becomes("worker_refused", "reason=\"unsupported\"", 1.0).await;
    assert_eq!(mirror.depth(A, &tokens(&[1, 2])).await, 0);
    let (status, readiness) = collector.get("/readyz").await;
    let readiness: Value = serde_json::from_str(&readiness).unwrap();
    let why = readiness["pools"]["llama"]["refused"][format!("{A}/0")].as_str().unwrap();
    assert!(status == 200 && why.contains("SGLang before 0.5.6"), "{readiness}");
    engine.publish(json!([stored(None, &[5])])).await;
    let frames = collector.metric("frames_total", "").await;
    engine.publish(json!([stored(None, &[6])])).await;
    eventually("the batch", async || collector.metric("frames_total", "").await > frames).await;
    assert_eq!(mirror.depth(A, &tokens(&[5])).await, 0);
    collector.stop().await;
}

#[tokio::test]
async fn a_name_that_stands_for_two_blocks_shows_a_release_before_0_5_6() {
    let mut engine = FakeEngine::start(Replays::WithoutTopic).await;
    engine.publish(json!([stored(None, &[1, 2])])).await;
    let (collector, mut mirror) = collector_of(&mut engine).await;
    assert_eq!(mirror.depth(A, &tokens(&[1, 2])).await, 2);
    // The same block, as a prompt's first.
    engine.publish(json!([stored(None, &[2])])).await;
    collector.metric_becomes("worker_refused", "reason=\"unsupported\"", 1.0).await;
    assert_eq!(mirror.depth(A, &tokens(&[1, 2])).await, 0);
    assert_eq!(mirror.depth(A, &tokens(&[2])).await, 0);
    collector.stop().await;
}
