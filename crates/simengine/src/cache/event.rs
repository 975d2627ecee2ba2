//! What the cache tells the world, before any encoding.

use std::sync::Arc;

use super::{BlockHash, Lora};

/// One change of the cache's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheEvent {
    /// Blocks got content.
    Stored(StoredBlocks),
    /// One physical block lost its content. Another block may hold the same hash still.
    Removed(BlockHash),
    /// Every block lost its content.
    Cleared,
}

/// A run of blocks of one sequence that became full in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlocks {
    /// The blocks' hashes, first to last; never empty.
    pub hashes: Vec<BlockHash>,
    /// The hash of the block before the first; `None`: the run starts the sequence.
    pub parent: Option<BlockHash>,
    /// The blocks' token ids: `block_size` for each hash.
    pub tokens: Vec<u32>,
    /// The adapter, if one is used.
    pub lora: Option<Lora>,
    /// The extra keys of each block; empty where a block has none.
    pub extra_keys: Vec<Vec<Arc<str>>>,
}
