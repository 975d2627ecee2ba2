//! vLLM's encoding of event batches.
//!
//! ```text
//! batch  = [timestamp f64 (s), [event ...], rank]
//! map    = {"type": "BlockStored", "block_hashes": [...], ...}           vLLM 0.24 and later
//! array  = ["BlockStored", [...], parent, tokens, ..., nil]              before: every field, in this order
//! hash   = u64 (low 64 bits) or 32 bytes
//! ```
//!
//! As a map, a field that has a default vanishes when it is nil (the sliding window); one without a default stays
//! (`parent_block_hash`, `lora_id`, `lora_name`).

use std::sync::Arc;

use rmp_serde::Serializer;
use serde::Serialize;

use crate::cache::{BlockHash, CacheEvent, StoredBlocks};
use crate::config::{EventFormat, HashFormat};

/// The data-parallel rank: there is one.
const RANK: u32 = 0;
/// The cache group: a full-attention model has one.
const GROUP: u32 = 0;
const MEDIUM: &str = "GPU";
const SPEC_KIND: &str = "full_attention";

/// Encodes the batches of one engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder {
    pub(super) event_format: EventFormat,
    pub(super) hash_format: HashFormat,
    /// Tokens in a block.
    pub(super) block_size: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireEvent<'a> {
    Stored(WireStored<'a>),
    Removed(WireRemoved),
    Cleared(WireCleared),
}

/// The fields' order is the wire's.
#[derive(Serialize)]
struct WireStored<'a> {
    r#type: &'static str,
    block_hashes: Vec<WireHash>,
    parent_block_hash: Option<WireHash>,
    token_ids: &'a [u32],
    block_size: usize,
    lora_id: Option<u32>,
    medium: &'static str,
    lora_name: Option<&'a str>,
    extra_keys: Vec<Option<Vec<&'a str>>>,
    group_idx: u32,
    kv_cache_spec_kind: &'static str,
    /// `Some` is nil on the wire, `None` is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_cache_spec_sliding_window: Option<()>,
}

#[derive(Serialize)]
struct WireRemoved {
    r#type: &'static str,
    block_hashes: [WireHash; 1],
    medium: &'static str,
    group_idx: u32,
}

#[derive(Serialize)]
struct WireCleared {
    r#type: &'static str,
}

enum WireHash {
    Int(u64),
    Bytes(BlockHash),
}

// === impl Encoder ===

impl Encoder {
    /// The payload of one batch, stamped with `timestamp` (seconds since 1970).
    pub(super) fn encode(
        &self,
        timestamp: f64,
        events: &[CacheEvent],
    ) -> Result<Vec<u8>, rmp_serde::encode::Error> {
        let events: Vec<WireEvent<'_>> = events.iter().map(|event| self.wire_event(event)).collect();
        let batch = (timestamp, events, RANK);
        let mut payload = Vec::with_capacity(256);
        match self.event_format {
            EventFormat::Map => batch.serialize(&mut Serializer::new(&mut payload).with_struct_map())?,
            EventFormat::Array => batch.serialize(&mut Serializer::new(&mut payload))?,
        }
        Ok(payload)
    }

    fn wire_event<'a>(&self, event: &'a CacheEvent) -> WireEvent<'a> {
        match event {
            CacheEvent::Stored(blocks) => WireEvent::Stored(self.wire_stored(blocks)),
            CacheEvent::Removed(hash) => WireEvent::Removed(WireRemoved {
                r#type: "BlockRemoved",
                block_hashes: [self.wire_hash(hash)],
                medium: MEDIUM,
                group_idx: GROUP,
            }),
            CacheEvent::Cleared => WireEvent::Cleared(WireCleared { r#type: "AllBlocksCleared" }),
        }
    }

    fn wire_stored<'a>(&self, blocks: &'a StoredBlocks) -> WireStored<'a> {
        WireStored {
            r#type: "BlockStored",
            block_hashes: blocks.hashes.iter().map(|hash| self.wire_hash(hash)).collect(),
            parent_block_hash: blocks.parent.as_ref().map(|hash| self.wire_hash(hash)),
            token_ids: &blocks.tokens,
            block_size: self.block_size,
            lora_id: blocks.lora.as_ref().map(|lora| lora.id),
            medium: MEDIUM,
            lora_name: blocks.lora.as_ref().map(|lora| &*lora.name),
            extra_keys: blocks.extra_keys.iter().map(|keys| names(keys)).collect(),
            group_idx: GROUP,
            kv_cache_spec_kind: SPEC_KIND,
            kv_cache_spec_sliding_window: (self.event_format == EventFormat::Array).then_some(()),
        }
    }

    fn wire_hash(&self, hash: &BlockHash) -> WireHash {
        match self.hash_format {
            HashFormat::Int => WireHash::Int(hash.low64()),
            HashFormat::Bytes => WireHash::Bytes(*hash),
        }
    }
}

/// The keys of one block; nil where it has none.
fn names(keys: &[Arc<str>]) -> Option<Vec<&str>> {
    (!keys.is_empty()).then(|| keys.iter().map(|key| &**key).collect())
}

// === impl WireHash ===

impl Serialize for WireHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(low) => serializer.serialize_u64(*low),
            Self::Bytes(hash) => serializer.serialize_bytes(hash.as_bytes()),
        }
    }
}
