//! The block cache, under vLLM's rules. Pure: no clock, no I/O.
//!
//! The memory is a fixed number of physical blocks of `block_size` tokens. A running request holds the blocks of its
//! tokens; blocks may be shared, so each counts its holders. A block without holders stands in the free queue and keeps
//! its content until it is taken for something else:
//!
//! ```text
//!            admit: hit (holders + 1) ------------------------.
//!                                                             v
//!   free queue [oldest ... newest]  -- take: BlockRemoved --> held -- full: BlockStored
//!         ^                  ^                                |
//!         '-- partial block -'---- release: last block first -'
//! ```
//!
//! * A hit is the longest run of full blocks, from the first, whose chained hashes are in the cache, but at most
//!   `floor((tokens - 1) / block_size)` blocks: at least one token has to be computed to sample from. So a fully cached
//!   prompt computes its last block again, into another physical block: then two blocks hold one hash, both are
//!   announced, and both will be removed, one event each.
//! * Blocks are taken from the front of the free queue. One that still has content loses it: `BlockRemoved`, one event
//!   for each block, before the `BlockStored` of the same step.
//! * A finished request's blocks are freed last block first, so that tails are taken before heads. A partial block,
//!   whose content nobody can find, goes to the front of the queue (as a recorded vLLM 0.32 does).
//! * A hit sends no event.

mod event;
mod free_queue;
mod hash;
mod namespace;
#[cfg(test)]
mod property_tests;
mod sequence;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::num::NonZeroUsize;

pub use self::event::{CacheEvent, StoredBlocks};
use self::free_queue::{FreeQueue, Place};
pub use self::hash::{BlockHash, ChainHasher};
pub use self::namespace::{Lora, Namespace};
pub use self::sequence::Sequence;

/// The number of a physical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlockId(usize);

/// The engine's block memory.
#[derive(Debug)]
pub struct BlockCache {
    block_size: usize,
    hasher: ChainHasher,
    blocks: Vec<Block>,
    free: FreeQueue,
    /// The blocks that hold each hash, the oldest first. A hit takes the oldest.
    by_hash: HashMap<BlockHash, Vec<BlockId>>,
    events: Vec<CacheEvent>,
}

/// The sequence needs more blocks than are free. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough free blocks")]
pub struct NoRoom;

/// Blocks are held by running requests, so the cache cannot be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("blocks are in use by running requests")]
pub struct InUse;

#[derive(Debug)]
struct Block {
    /// What a full block holds; `None`: nothing that can be found.
    hash: Option<BlockHash>,
    state: BlockState,
}

#[derive(Clone, Copy, Debug)]
enum BlockState {
    Free(Place),
    Held { holders: usize },
}

// === impl BlockCache ===

impl BlockCache {
    /// An empty cache of `num_blocks` blocks of `block_size` tokens, with hashes that start at `hash_seed`.
    pub fn new(block_size: NonZeroUsize, num_blocks: usize, hash_seed: u64) -> Self {
        let mut free = FreeQueue::default();
        let blocks = (0..num_blocks)
            .map(|number| Block { hash: None, state: BlockState::Free(free.push_back(BlockId(number))) })
            .collect();
        Self {
            block_size: block_size.get(),
            hasher: ChainHasher::new(hash_seed),
            blocks,
            free,
            by_hash: HashMap::new(),
            events: Vec::new(),
        }
    }

    /// Tokens in a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// All physical blocks.
    pub fn total_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that running requests hold.
    pub fn held_blocks(&self) -> usize {
        self.blocks.len() - self.free.len()
    }

    /// Whether `tokens` tokens would fit into an empty cache.
    pub fn can_ever_fit(&self, tokens: usize) -> bool {
        tokens.div_ceil(self.block_size) <= self.blocks.len()
    }

    /// Gives the sequence a place for all its tokens, from the cache as far as it reaches, and announces the full blocks
    /// that will be computed. Returns the number of cached tokens.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if too few blocks are free; then nothing has changed.
    pub fn admit(&mut self, sequence: &mut Sequence) -> Result<usize, NoRoom> {
        sequence.hash_full_blocks(&self.hasher, self.block_size);
        let hits = self.longest_prefix(sequence);
        let fresh = sequence.tokens.len().div_ceil(self.block_size).saturating_sub(hits.len());
        // A hit may itself stand in the free queue: it leaves it, so it is no room for a fresh block.
        let idle_hits = hits.iter().filter(|id| self.is_free(**id)).count();
        if fresh + idle_hits > self.free.len() {
            return Err(NoRoom);
        }
        let cached_tokens = hits.len() * self.block_size;
        sequence.hashed_blocks = hits.len();
        for id in hits {
            self.hold(id);
            sequence.blocks.push(id);
        }
        for _ in 0..fresh {
            sequence.blocks.push(self.take()?);
        }
        self.store_full_blocks(sequence);
        Ok(cached_tokens)
    }

    /// Adds one token to an admitted sequence, in a fresh block if its last one is full, and announces the block that
    /// the token fills.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if a fresh block is needed and none is free; then nothing has changed.
    pub fn append(&mut self, sequence: &mut Sequence, token: u32) -> Result<(), NoRoom> {
        if sequence.tokens.len() == sequence.blocks.len() * self.block_size {
            sequence.blocks.push(self.take()?);
        }
        sequence.tokens.push(token);
        sequence.hash_full_blocks(&self.hasher, self.block_size);
        self.store_full_blocks(sequence);
        Ok(())
    }

    /// Takes the sequence's blocks back, last block first. Their content stays until they are taken again.
    pub fn release(&mut self, sequence: &mut Sequence) {
        sequence.hashed_blocks = 0;
        for id in sequence.blocks.drain(..).rev() {
            self.let_go(id);
        }
    }

    /// Forgets all content.
    ///
    /// # Errors
    ///
    /// [`InUse`] while any sequence holds blocks; then nothing has changed.
    pub fn reset(&mut self) -> Result<(), InUse> {
        if self.held_blocks() > 0 {
            return Err(InUse);
        }
        for block in &mut self.blocks {
            block.hash = None;
        }
        self.by_hash.clear();
        self.events.push(CacheEvent::Cleared);
        Ok(())
    }

    /// The events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<CacheEvent> {
        std::mem::take(&mut self.events)
    }

    fn longest_prefix(&self, sequence: &Sequence) -> Vec<BlockId> {
        let most = sequence.tokens.len().saturating_sub(1) / self.block_size;
        let holders = sequence.hashes.iter().take(most).map(|hash| self.by_hash.get(hash)?.first().copied());
        holders.map_while(|id| id).collect()
    }

    fn is_free(&self, id: BlockId) -> bool {
        matches!(self.blocks.get(id.0), Some(Block { state: BlockState::Free(_), .. }))
    }

    fn hold(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(id.0) else { return };
        block.state = match block.state {
            BlockState::Free(place) => {
                self.free.remove(place);
                BlockState::Held { holders: 1 }
            }
            BlockState::Held { holders } => BlockState::Held { holders: holders + 1 },
        };
    }

    fn let_go(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(id.0) else { return };
        block.state = match block.state {
            BlockState::Held { holders } if holders > 1 => BlockState::Held { holders: holders - 1 },
            BlockState::Held { .. } if block.hash.is_none() => BlockState::Free(self.free.push_front(id)),
            BlockState::Held { .. } => BlockState::Free(self.free.push_back(id)),
            free @ BlockState::Free(_) => free,
        };
    }

    /// Takes the block that was used least recently, and its content with it.
    fn take(&mut self) -> Result<BlockId, NoRoom> {
        let id = self.free.pop().ok_or(NoRoom)?;
        let block = self.blocks.get_mut(id.0).ok_or(NoRoom)?;
        block.state = BlockState::Held { holders: 1 };
        if let Some(hash) = block.hash.take() {
            self.forget(&hash, id);
            self.events.push(CacheEvent::Removed(hash));
        }
        Ok(id)
    }

    fn forget(&mut self, hash: &BlockHash, id: BlockId) {
        let Some(holders) = self.by_hash.get_mut(hash) else { return };
        holders.retain(|holder| *holder != id);
        if holders.is_empty() {
            self.by_hash.remove(hash);
        }
    }

    /// Makes the sequence's full blocks findable, and announces them in one event.
    fn store_full_blocks(&mut self, sequence: &mut Sequence) {
        let known = sequence.hashed_blocks;
        let fresh = sequence.blocks.iter().zip(&sequence.hashes).skip(known);
        for (id, hash) in fresh {
            if let Some(block) = self.blocks.get_mut(id.0) {
                block.hash = Some(*hash);
                self.by_hash.entry(*hash).or_default().push(*id);
            }
        }
        sequence.hashed_blocks = sequence.hashes.len();
        if sequence.hashed_blocks > known {
            self.events.push(CacheEvent::Stored(stored_blocks(sequence, known, self.block_size)));
        }
    }
}

/// The event of the sequence's full blocks from number `first` on.
fn stored_blocks(sequence: &Sequence, first: usize, block_size: usize) -> StoredBlocks {
    let hashes: Vec<_> = sequence.hashes.iter().skip(first).copied().collect();
    let tokens = sequence.tokens.iter().skip(first * block_size).take(hashes.len() * block_size);
    StoredBlocks {
        parent: first.checked_sub(1).and_then(|parent| sequence.hashes.get(parent)).copied(),
        tokens: tokens.copied().collect(),
        lora: sequence.namespace.lora.clone(),
        extra_keys: (first..first + hashes.len()).map(|index| sequence.namespace.extra_keys(index)).collect(),
        hashes,
    }
}
