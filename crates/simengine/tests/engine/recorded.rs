//! The cache against a real engine: vLLM 0.32.0 ran 250 requests one at a time (conversations, shared prefixes, an
//! adapter, salts, evictions), and its answers and event frames were recorded. Given the same tokens, this cache has to
//! report the same cached tokens and to announce the same stores and removals in the same order.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;
use warmroute_simengine::cache::{BlockCache, BlockHash, CacheEvent, Lora, Namespace, Sequence};

const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../collector/tests/data/vllm_0.32_truth_1.jsonl");

const BLOCK_SIZE: usize = 32;
/// The engine ran with 96, of which vLLM keeps one for itself.
const NUM_BLOCKS: usize = 95;

/// One line of the recording.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    /// A request, before it was sent.
    Query { tokens: Vec<u32>, lora: Option<String>, salt: Option<String> },
    /// What the engine answered to it.
    Truth { cached_tokens: usize },
    /// A batch that it caused: topic, number, payload.
    Event { frames_b64: [String; 3] },
}

/// A request with all that came of it.
struct Recorded {
    namespace: Namespace,
    prompt: Vec<u32>,
    cached_tokens: usize,
    events: Vec<RecordedEvent>,
}

#[derive(Clone, Debug)]
enum RecordedEvent {
    Stored { hashes: Vec<u64>, parent: Option<u64>, tokens: Vec<u32> },
    Removed(u64),
}

/// The recorded engine's hashes, by ours, and the tokens up to each of them.
#[derive(Default)]
struct Correspondence {
    theirs: HashMap<BlockHash, u64>,
    prefixes: HashMap<u64, Vec<u32>>,
}

// === impl Recorded ===

impl Recorded {
    fn read_all() -> Vec<Self> {
        let mut requests: Vec<Self> = Vec::new();
        for line in std::fs::read_to_string(RECORDING).unwrap().lines() {
            match serde_json::from_str(line).unwrap() {
                Line::Query { tokens, lora, salt } => {
                    let lora = lora.map(|name| Lora { id: 1, name: name.into() });
                    let namespace = Namespace { lora, salt: salt.map(Into::into) };
                    requests.push(Self { namespace, prompt: tokens, cached_tokens: 0, events: Vec::new() });
                }
                Line::Truth { cached_tokens } => requests.last_mut().unwrap().cached_tokens = cached_tokens,
                Line::Event { frames_b64: [_, _, payload] } => {
                    let payload = BASE64_STANDARD.decode(payload).unwrap();
                    let batch: Value = rmp_serde::from_slice(&payload).unwrap();
                    let events = batch[1].as_array().unwrap().iter().map(RecordedEvent::parse);
                    requests.last_mut().unwrap().events.extend(events);
                }
            }
        }
        requests
    }

    /// The output tokens that the stores tell. Up to a block of them remains unknown.
    fn known_output(&self, known: &mut Correspondence) -> Vec<u32> {
        let mut output = Vec::new();
        for event in &self.events {
            if let RecordedEvent::Stored { hashes, parent, tokens } = event {
                let prefix = known.remember(hashes, *parent, tokens);
                output = prefix.get(self.prompt.len()..).map_or(output, <[u32]>::to_vec);
            }
        }
        output
    }
}

// === impl RecordedEvent ===

impl RecordedEvent {
    fn parse(event: &Value) -> Self {
        let list = |name: &str| event[name].as_array().unwrap().iter().map(|value| value.as_u64().unwrap());
        match event["type"].as_str().unwrap() {
            "BlockStored" => Self::Stored {
                hashes: list("block_hashes").collect(),
                parent: event["parent_block_hash"].as_u64(),
                tokens: list("token_ids").map(|token| u32::try_from(token).unwrap()).collect(),
            },
            "BlockRemoved" => Self::Removed(event["block_hashes"][0].as_u64().unwrap()),
            other => panic!("{other} is not in this recording"),
        }
    }
}

// === impl Correspondence ===

impl Correspondence {
    /// Returns all tokens up to the last of the blocks.
    fn remember(&mut self, hashes: &[u64], parent: Option<u64>, tokens: &[u32]) -> Vec<u32> {
        let mut prefix = parent.map_or_else(Vec::new, |parent| self.prefixes[&parent].clone());
        for (hash, block) in hashes.iter().zip(tokens.chunks(BLOCK_SIZE)) {
            prefix.extend_from_slice(block);
            self.prefixes.insert(*hash, prefix.clone());
        }
        prefix
    }

    /// Whether our event says what the recorded one says.
    fn matches(&mut self, ours: &CacheEvent, theirs: &RecordedEvent) -> bool {
        match (ours, theirs) {
            (CacheEvent::Stored(blocks), RecordedEvent::Stored { hashes, tokens, .. }) => {
                let mut pairs = blocks.hashes.iter().zip(hashes);
                blocks.tokens == *tokens
                    && blocks.hashes.len() == hashes.len()
                    && pairs.all(|(ours, theirs)| self.theirs.entry(*ours).or_insert(*theirs) == theirs)
            }
            (CacheEvent::Removed(ours), RecordedEvent::Removed(theirs)) => {
                self.theirs.get(ours) == Some(theirs)
            }
            _ => false,
        }
    }
}

#[test]
fn caches_evicts_and_announces_as_a_recorded_vllm_did() {
    let mut cache = BlockCache::new(NonZeroUsize::new(BLOCK_SIZE).unwrap(), NUM_BLOCKS, 1);
    let mut known = Correspondence::default();
    let requests = Recorded::read_all();
    assert_eq!(requests.len(), 250);
    for (number, request) in requests.into_iter().enumerate() {
        let output = request.known_output(&mut known);
        let mut sequence = Sequence::new(request.namespace, request.prompt);
        assert_eq!(cache.admit(&mut sequence), Ok(request.cached_tokens), "request {number}");
        for token in output {
            cache.append(&mut sequence, token).unwrap();
        }
        let mut events = cache.take_events();
        if events.len() < request.events.len() {
            // The unknown rest of the output began a block, and that took one away.
            cache.append(&mut sequence, u32::MAX).unwrap();
            events.extend(cache.take_events());
        }
        cache.release(&mut sequence);
        assert_eq!(events.len(), request.events.len(), "request {number}");
        for (ours, theirs) in events.iter().zip(&request.events) {
            assert!(known.matches(ours, theirs), "request {number}: {ours:?} is not {theirs:?}");
        }
    }
}
