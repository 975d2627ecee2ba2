//! One request's tokens and the blocks that hold them.

use super::{BlockHash, BlockId, ChainHasher, Namespace};

/// The tokens of one request, prompt and generated, and the blocks that it holds while it runs.
///
/// Every token in it has a place in a block once the cache has admitted the sequence. A sequence that holds blocks must
/// go back to its cache by [`BlockCache::release`](super::BlockCache::release); dropping it would leak them.
#[derive(Debug)]
pub struct Sequence {
    pub(super) namespace: Namespace,
    pub(super) tokens: Vec<u32>,
    /// The hashes of the full blocks, as far as they have been computed.
    pub(super) hashes: Vec<BlockHash>,
    pub(super) blocks: Vec<BlockId>,
    /// How many of `blocks`, from the first, are known by their hash: found in the cache, or stored and announced.
    pub(super) hashed_blocks: usize,
}

// === impl Sequence ===

impl Sequence {
    /// A sequence that holds no block yet.
    pub fn new(namespace: Namespace, tokens: Vec<u32>) -> Self {
        Self { namespace, tokens, hashes: Vec::new(), blocks: Vec::new(), hashed_blocks: 0 }
    }

    /// All tokens, in order.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many blocks it holds.
    pub fn held_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Adds tokens to a sequence that holds no block, before it is admitted again. For a sequence that holds blocks
    /// this does nothing: there each token has to find a place, see [`BlockCache::append`](super::BlockCache::append).
    pub fn extend(&mut self, tokens: &[u32]) {
        if self.blocks.is_empty() {
            self.tokens.extend_from_slice(tokens);
        }
    }

    /// Computes the hashes of full blocks that have none yet.
    pub(super) fn hash_full_blocks(&mut self, hasher: &ChainHasher, block_size: usize) {
        let known = self.hashes.len();
        for (index, tokens) in self.tokens.chunks_exact(block_size).enumerate().skip(known) {
            let keys = self.namespace.extra_keys(index);
            self.hashes.push(hasher.block(self.hashes.last(), tokens, &keys));
        }
    }
}
