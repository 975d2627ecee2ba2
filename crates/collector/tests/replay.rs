//! `warmroute-collector replay` over recordings of real engines.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "tests may panic"
)]

use std::process::{Command, Output};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn data(name: &str) -> String {
    format!("{}/tests/data/{name}.jsonl", env!("CARGO_MANIFEST_DIR"))
}

fn replay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warmroute-collector")).arg("replay").args(arguments).output().unwrap()
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    std::str::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn summary(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    lines(&output.stderr).pop().unwrap()
}

/// An engine reports after each request how many of its tokens it had cached: the index must have said so before. The
/// engine always computes the last token, so a prompt that is cached whole still counts one block less.
#[test]
fn predicts_every_cached_token_that_a_real_engine_reports() {
    let path = data("vllm_0.32_truth_1");
    let output = replay(&[&path]);
    let summary = summary(&output);
    assert_eq!((&summary["undecodable_frames"], &summary["bad_events"]), (&json!(0), &json!(0)));
    let answers = lines(&output.stdout);

    let recording = lines(&std::fs::read(&path).unwrap());
    let of_kind = |kind| recording.iter().filter(move |line| line["kind"] == kind);
    let mut compared = 0;
    for (query, (truth, answer)) in of_kind("query").zip(of_kind("truth").zip(&answers)) {
        assert_eq!((&query["n"], &query["n"]), (&truth["n"], &answer["n"]));
        let block_size = answer["block_size"].as_u64().unwrap_or(1);
        let deepest = answer["blocks"].as_array().unwrap().iter().filter(|entry| entry["worker"] == "w0");
        let cached = deepest.map(|entry| entry["blocks"].as_u64().unwrap()).max().unwrap_or(0) * block_size;
        let tokens = query["tokens"].as_array().unwrap().len() as u64;
        let usable = (tokens - 1) / block_size * block_size;
        assert_eq!(cached.min(usable), truth["cached_tokens"].as_u64().unwrap(), "query {}", query["n"]);
        compared += 1;
    }
    assert_eq!((compared, answers.len()), (250, 250));
}

#[test]
fn reads_every_recording_without_a_complaint() {
    for name in [
        "vllm_0.32_base",
        "vllm_0.32_sliding_window_bytes",
        "vllm_old_frames",
        "mocker_events",
        "sglang_frames",
        "sglang_radix_events",
    ] {
        let engine = if name.starts_with("sglang") { "sglang" } else { "vllm" };
        let output = replay(&["--engine", engine, &data(name)]);
        let summary = summary(&output);
        assert_eq!(
            (&summary["undecodable_frames"], &summary["bad_events"]),
            (&json!(0), &json!(0)),
            "{name}"
        );
        assert!(summary["frames"].as_u64().unwrap() > 0 && summary["events"].as_u64().unwrap() > 0, "{name}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_line_that_is_no_json_is_named() {
    let path = std::env::temp_dir().join(format!("warmroute-replay-{}.jsonl", std::process::id()));
    std::fs::write(&path, "{\"kind\":\"note\"}\nnonsense\n").unwrap();
    let output = replay(&[path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 2"));
}

/// A line with one batch of a worker.
fn event_line(kind: &str, worker: &str, seq: u64, events: &Value) -> Value {
    let payload = rmp_serde::to_vec(&json!([1.5, events, 0])).unwrap();
    let frames: Vec<_> =
        [b"".as_slice(), &seq.to_be_bytes(), &payload].map(|frame| STANDARD.encode(frame)).into();
    json!({"kind": kind, "worker": worker, "frames_b64": frames})
}

/// A store of blocks of 2 tokens: block `n` has the tokens `[n, n]` and the hash `n`.
fn stored(parent: Option<u64>, blocks: &[u64], medium: &str) -> Value {
    let tokens: Vec<_> = blocks.iter().flat_map(|block| [block, block]).collect();
    json!(["BlockStored", blocks, parent, tokens, 2, null, medium])
}

#[test]
fn answers_by_worker_rank_and_tier_and_counts_what_was_odd() {
    let query =
        json!({"kind": "query", "n": 7, "tokens": [1, 1, 2, 2, 3, 3, 4, 4, 5], "lora": null, "salt": null});
    let recording = [
        query.clone(),
        event_line("event", "b", 0, &json!([stored(None, &[1, 2], "GPU"), stored(Some(2), &[3], "CPU")])),
        event_line(
            "event_rank1",
            "b",
            5,
            &json!([stored(None, &[1], "GPU"), ["BlockMoved"], ["BlockRemoved", 1]]),
        ),
        event_line("event", "a", 3, &json!([stored(None, &[1, 2, 3, 4], "DISK")])),
        json!({"kind": "event", "worker": "a", "frames_b64": ["AAAA", "AAAA"]}),
        event_line("event", "a", 4, &json!("no list")),
        query.clone(),
        event_line("event", "a", 4, &json!([stored(None, &[1], "GPU")])),
        query,
    ];
    let path = std::env::temp_dir().join(format!("warmroute-tiers-{}.jsonl", std::process::id()));
    std::fs::write(&path, recording.map(|line| line.to_string()).join("\n")).unwrap();
    let output = replay(&[path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();

    let entry =
        |worker, rank, tier, blocks| json!({"worker": worker, "rank": rank, "tier": tier, "blocks": blocks});
    let of_b = [entry("b", 0, "gpu", 2), entry("b", 0, "cpu", 3), entry("b", 1, "gpu", 1)];
    let with_a = |first| [&[first], &of_b[..]].concat();
    let answer = |blocks: Vec<Value>| json!({"n": 7, "blocks": blocks, "block_size": 2});
    let expected = [
        json!({"n": 7, "blocks": [], "block_size": null}),
        answer(with_a(entry("a", 0, "disk", 4))),
        answer(with_a(entry("a", 0, "gpu", 1))),
    ];
    assert_eq!(lines(&output.stdout), expected);
    let counts = json!({"frames": 6, "events": 7, "undecodable_frames": 2, "bad_events": 1, "resets": 1});
    assert_eq!(summary(&output), counts);
}

/// Each prompt's depth in the full-attention group after each request of a hybrid model: the sliding-window group's
/// stores (of only some of the tokens) and removals (of the same hashes) leave it alone.
#[test]
fn only_the_full_attention_group_of_a_hybrid_model_counts() {
    let recording = lines(&std::fs::read(data("vllm_0.32_sliding_window_bytes")).unwrap());
    let prompts: Vec<_> = recording
        .iter()
        .filter(|line| line["kind"] == "request" && line["tag"] != "A again")
        .map(|line| line["body"]["prompt"].clone())
        .collect();
    let mut text = String::new();
    for line in recording {
        text += &format!("{line}\n");
        if line["kind"] == "response" {
            for prompt in &prompts {
                text += &format!("{}\n", json!({"kind": "query", "n": line["tag"], "tokens": prompt}));
            }
        }
    }
    let path = std::env::temp_dir().join(format!("warmroute-hybrid-{}.jsonl", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let output = replay(&[path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(summary(&output)["bad_events"], 0);
    let answers = lines(&output.stdout);
    let depth = |answer: &Value| answer["blocks"][0]["blocks"].as_u64().unwrap_or(0);
    let depths: Vec<Vec<u64>> =
        answers.chunks(prompts.len()).map(|answers| answers.iter().map(depth).collect()).collect();
    // Prompts: A, B (which shares 6 blocks with A and was computed anew), J0 to J4.
    assert_eq!(
        depths,
        [
            [9, 6, 0, 0, 0, 0, 0],
            [9, 6, 0, 0, 0, 0, 0],
            [9, 9, 0, 0, 0, 0, 0],
            [6, 9, 9, 0, 0, 0, 0],
            [6, 8, 9, 9, 0, 0, 0],
            [0, 0, 8, 9, 9, 0, 0],
            [0, 0, 0, 8, 9, 9, 0],
            [0, 0, 0, 0, 8, 9, 9],
        ]
    );
}
