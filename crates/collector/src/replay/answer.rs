//! Answers to a recording's queries.

use serde::Serialize;
use serde_json::Value;
use warmroute_index::Index;
use warmroute_routing::hash::Namespace;

use super::line::Query;
pub use crate::inspect::WorkerBlocks;
use crate::inspect::cached_blocks;

/// How much of a prompt each worker has cached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The query's own number.
    pub n: Value,
    /// The workers that hold the prompt's first block, sorted by name, rank and tier.
    pub blocks: Vec<WorkerBlocks>,
    /// Tokens in a block; null while it is not known.
    pub block_size: Option<u32>,
}

// === impl Answer ===

impl Answer {
    pub(super) fn unknown(query: Query, block_size: Option<u32>) -> Self {
        Self { n: query.n, blocks: Vec::new(), block_size }
    }

    pub(super) fn look_up(query: Query, index: &mut Index) -> Self {
        let namespace = Namespace::new(query.lora.as_deref(), query.salt.as_deref());
        let blocks = cached_blocks(index, &query.tokens, namespace);
        Self { n: query.n, blocks, block_size: Some(index.block_size()) }
    }
}
