//! The recorded payloads of real engines, from the collector's test data.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use warmroute_wire::{Engine, Message};

/// Every recording, with the engine that speaks in it and the tokens in its blocks.
pub(crate) const RECORDINGS: [(&str, Engine, u32); 7] = [
    ("vllm_0.32_base", Engine::Vllm, 32),
    ("vllm_0.32_sliding_window_bytes", Engine::Vllm, 32),
    ("vllm_0.32_truth_1", Engine::Vllm, 32),
    ("vllm_old_frames", Engine::Vllm, 16),
    ("mocker_events", Engine::Vllm, 16),
    ("sglang_frames", Engine::Sglang, 16),
    ("sglang_radix_events", Engine::Sglang, 16),
];

/// One payload.
pub(crate) struct Recorded {
    /// Which process sent it: what an adapter remembers holds for one.
    pub(crate) run: String,
    pub(crate) payload: Vec<u8>,
}

/// A recording's payloads, in order.
pub(crate) fn read(name: &str) -> Vec<Recorded> {
    let path = format!("{}/../crates/collector/tests/data/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter_map(|line| recorded(&serde_json::from_str(line).unwrap())).collect()
}

fn recorded(line: &Value) -> Option<Recorded> {
    let kind = line["kind"].as_str().unwrap();
    if !kind.starts_with("event") && !kind.starts_with("replay_frame") {
        return None;
    }
    let frames = line["frames_b64"].as_array().unwrap().iter();
    let frames: Vec<_> = frames.map(|frame| STANDARD.decode(frame.as_str().unwrap()).unwrap()).collect();
    let Message::Batch { payload, .. } = Message::parse(&frames).unwrap() else { return None };
    let run = ["run", "worker"].map(|key| line[key].as_str().unwrap_or_default()).concat();
    Some(Recorded { run, payload: payload.to_vec() })
}
