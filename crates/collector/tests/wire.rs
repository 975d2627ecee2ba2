//! Every recorded payload is read, and no damage to one panics or reaches the events before it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "tests may panic"
)]

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::Value;
use warmroute_index::event::{EngineHash, Event};
use warmroute_wire::{Adapter, Engine, Message};

const RECORDINGS: [(&str, Engine); 7] = [
    ("vllm_0.32_base", Engine::Vllm),
    ("vllm_0.32_sliding_window_bytes", Engine::Vllm),
    ("vllm_0.32_truth_1", Engine::Vllm),
    ("vllm_old_frames", Engine::Vllm),
    ("mocker_events", Engine::Vllm),
    ("sglang_frames", Engine::Sglang),
    ("sglang_radix_events", Engine::Sglang),
];

/// A recorded message.
struct Recorded {
    line: Value,
    frames: Vec<Vec<u8>>,
}

fn recorded(name: &str) -> Vec<Recorded> {
    let path = format!("{}/tests/data/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter(|line| {
            let kind = line["kind"].as_str().unwrap();
            kind.starts_with("event") || kind.starts_with("replay_frame")
        })
        .map(|line| {
            let frames = line["frames_b64"].as_array().unwrap().iter();
            let frames = frames.map(|frame| STANDARD.decode(frame.as_str().unwrap()).unwrap()).collect();
            Recorded { line, frames }
        })
        .collect()
}

fn all_payloads() -> Vec<(Engine, Vec<u8>)> {
    let messages = RECORDINGS
        .iter()
        .flat_map(|(name, engine)| recorded(name).into_iter().map(|message| (*engine, message)));
    messages
        .map(|(engine, message)| (engine, message.frames.last().unwrap().clone()))
        .filter(|(_, payload)| !payload.is_empty())
        .collect()
}

fn recorded_hash(value: &Value) -> EngineHash {
    EngineHash(match value {
        Value::Number(number) => number.as_u64().unwrap_or_else(|| number.as_i64().unwrap() as u64),
        digest => {
            let hex = digest["$bytes"].as_str().unwrap();
            u64::from_str_radix(&hex[hex.len() - 16..], 16).unwrap()
        }
    })
}

#[test]
fn reads_every_recorded_message() {
    for (name, engine) in RECORDINGS {
        let mut adapters = HashMap::new();
        let (mut events, mut ends) = (0, 0);
        for Recorded { line, frames } in recorded(name) {
            match Message::parse(&frames).unwrap() {
                Message::End => ends += 1,
                Message::Batch { seq, payload } => {
                    if let Some(recorded) = line["seq"].as_u64() {
                        assert_eq!(seq, recorded);
                    }
                    let run = line["run"].as_str().unwrap_or_default().to_owned();
                    let adapter = adapters.entry(run.clone()).or_insert_with(|| Adapter::new(engine));
                    let batch = adapter.decode(payload).unwrap();
                    // Its batches have no rank: it is the only recorded release that is too old to be indexed.
                    assert_eq!(batch.unsupported.is_some(), run.starts_with("sglang0.4.6"), "{run}");
                    assert!(batch.bad.is_empty(), "{name}: {:?}", batch.bad);
                    events += batch.len();
                }
            }
        }
        assert!(events > 0, "{name}");
        let has_replays = !name.contains("truth") && !name.contains("radix");
        assert_eq!(ends > 0, has_replays, "{name}");
    }
}

/// The recordings' `payload` was decoded by another program.
#[test]
fn reads_what_another_decoder_has_read() {
    for name in ["vllm_0.32_base", "mocker_events"] {
        for Recorded { line, frames } in recorded(name) {
            let Ok(Message::Batch { payload, .. }) = Message::parse(&frames) else { continue };
            let batch = Adapter::vllm().decode(payload).unwrap();
            let theirs = line["payload"][1].as_array().unwrap();
            assert_eq!(batch.events.len(), theirs.len());
            for (ours, theirs) in batch.events.iter().zip(theirs) {
                let hashes: Vec<_> =
                    theirs["block_hashes"].as_array().into_iter().flatten().map(recorded_hash).collect();
                match (ours, theirs["type"].as_str().unwrap()) {
                    (Event::Stored(stored), "BlockStored") => {
                        assert_eq!(stored.hashes, hashes);
                        let parent = &theirs["parent_block_hash"];
                        assert_eq!(stored.parent, (!parent.is_null()).then(|| recorded_hash(parent)));
                        let tokens: Vec<u32> = serde_json::from_value(theirs["token_ids"].clone()).unwrap();
                        assert_eq!(stored.tokens, tokens);
                        assert_eq!(u64::from(stored.block_size), theirs["block_size"].as_u64().unwrap());
                    }
                    (Event::Removed(removed), "BlockRemoved") => assert_eq!(removed.hashes, hashes),
                    (Event::Cleared, "AllBlocksCleared") => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_payload_cut_anywhere_keeps_the_events_before_the_cut() {
    for (engine, payload) in all_payloads().iter().filter(|(_, payload)| payload.len() < 2000) {
        let whole = Adapter::new(*engine).decode(payload).unwrap();
        for cut in 0..payload.len() {
            if let Ok(batch) = Adapter::new(*engine).decode(&payload[..cut]) {
                assert!(whole.events.starts_with(&batch.events));
                assert!(batch.len() <= whole.len());
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for engine in Engine::ALL {
            let _ = Adapter::new(engine).decode(&bytes);
        }
    }

    #[test]
    fn no_changed_bytes_panic(at in any::<[prop::sample::Index; 3]>(), to in any::<[u8; 3]>()) {
        for (engine, mut payload) in all_payloads().into_iter().filter(|(_, payload)| payload.len() < 1000).step_by(7) {
            for (at, to) in at.iter().zip(to) {
                let at = at.index(payload.len());
                payload[at] = to;
            }
            let _ = Adapter::new(engine).decode(&payload);
        }
    }
}
