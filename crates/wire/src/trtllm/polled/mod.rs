//! TensorRT-LLM's events as `POST /kv_cache_events` of trtllm-serve gives them: a JSON list, each event to one caller only.
//!
//! ```text
//! {"event_id": 7, "attention_dp_rank": 1, "window_size": 32768, "data": {"type": "stored", ..}}
//! ```
//!
//! Each rank numbers its events from 0; the numbers tell what is lost, so they are read first ([`split()`]) and the events
//! one by one, in order ([`Reader`]). What they mean:
//!
//! * A model with several attention windows tells each window's blocks apart by `window_size`. Only those of the largest
//!   window keep every token of a prefix; `created` events, at the start, name all windows.
//! * A block that is not full yet is told too, under a name that it loses when it is full. It is no block of the index; its
//!   name is remembered, so that its removal is known.
//! * A block is in one tier at a time: `updated` moves it, and `removed` does not say from where. So each block's tier is
//!   remembered.

mod json;
mod split;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored};
use warmroute_routing::Tier;

use self::json::{Block, Data};
pub use self::split::{Numbered, split};
use crate::batch::{BadEvent, Batch, Skipped};

/// The kind of event in complaints.
pub(super) const KIND: &str = "kv_cache_event";

/// Reads the events of one rank.
#[derive(Clone, Debug)]
pub struct Reader {
    block_size: usize,
    /// The largest attention window that was seen.
    window: Option<u64>,
    blocks: HashMap<EngineHash, Known>,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// A full block, in this tier.
    Full(Tier),
    /// A block of so many tokens.
    Partial(usize),
}

// === impl Reader ===

impl Reader {
    /// A reader for a pool whose blocks have so many tokens.
    pub fn new(block_size: u32) -> Self {
        Self { block_size: block_size as usize, window: None, blocks: HashMap::new() }
    }

    /// Events are lost: nothing is known of the blocks. The windows are as they were, and are told only once.
    pub fn forget_blocks(&mut self) {
        self.blocks.clear();
    }

    /// Another process answers now.
    pub fn forget(&mut self) {
        self.blocks.clear();
        self.window = None;
    }

    /// Reads one event.
    pub fn read(&mut self, event: &[u8]) -> Batch {
        let mut batch = Batch::default();
        match serde_json::from_slice::<json::Event>(event) {
            Ok(json::Event { data, window_size }) => {
                if self.is_of_largest_window(window_size, &mut batch) {
                    self.take(data, &mut batch);
                }
            }
            Err(error) => batch.bad.push(BadEvent::Field { kind: KIND, message: error.to_string() }),
        }
        batch
    }

    /// Whether an event is of the largest window. Where a larger one than before comes, what is known is of the wrong one.
    fn is_of_largest_window(&mut self, window: Option<u64>, batch: &mut Batch) -> bool {
        if window.is_some() && window < self.window {
            batch.skipped.push(Skipped::OtherAttention);
            return false;
        }
        if window > self.window && !self.blocks.is_empty() {
            self.blocks.clear();
            batch.events.push(Event::Cleared);
        }
        self.window = window.or(self.window);
        true
    }

    fn take(&mut self, data: Data, batch: &mut Batch) {
        match data {
            Data::Created => {}
            Data::Stored { parent_hash, blocks } => self.store(parent_hash.map(|hash| hash.0), blocks, batch),
            Data::Removed { block_hashes } => self.remove(block_hashes.iter().map(|hash| hash.0), batch),
            Data::Updated { block_hash, cache_level } => {
                if let Some(level) = cache_level {
                    self.move_to(block_hash.0, json::tier(level.new_value), batch);
                }
            }
            Data::Unknown => batch.skipped.push(Skipped::UnknownType),
        }
    }

    fn store(&mut self, parent: Option<EngineHash>, mut blocks: Vec<Block>, batch: &mut Batch) {
        if let Some(size) = self.other_size(parent, &blocks) {
            // The index refuses it, and whoever owns the index says so.
            let tokens = blocks.iter().flat_map(Block::tokens).collect();
            let hashes = blocks.iter().map(Block::name).collect();
            let block_size = u32::try_from(size).unwrap_or(u32::MAX);
            batch
                .events
                .push(Event::Stored(Stored { block_size, ..stored(hashes, parent, tokens, Tier::Gpu) }));
            return;
        }
        if let Some(partial) = blocks.pop_if(|block| block.len() < self.block_size) {
            self.blocks.insert(partial.name(), Known::Partial(partial.len()));
            batch.skipped.push(Skipped::Partial);
        }
        let mut parent = parent;
        for run in blocks.chunk_by(|a, b| a.tier() == b.tier()) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let tier = first.tier();
            for block in run {
                self.blocks.insert(block.name(), Known::Full(tier));
            }
            let hashes = run.iter().map(Block::name).collect();
            let tokens = run.iter().flat_map(Block::tokens).collect();
            let mut media: Vec<_> = run.iter().map(Block::media).collect();
            if media.iter().all(Vec::is_empty) {
                media.clear();
            }
            batch.events.push(Event::Stored(Stored {
                block_size: self.block_size as u32,
                media,
                lora: first.adapter(),
                salt: first.salt(),
                ..stored(hashes, parent, tokens, tier)
            }));
            parent = Some(last.name());
        }
    }

    /// The size of the engine's blocks, where these show it to be another than the pool's. Nothing comes after a block that
    /// is not full.
    fn other_size(&self, parent: Option<EngineHash>, blocks: &[Block]) -> Option<usize> {
        if let Some(Known::Partial(size)) = parent.and_then(|parent| self.blocks.get(&parent)) {
            return Some(*size);
        }
        let (last, before) = blocks.split_last()?;
        let odd = before.iter().find(|block| block.len() != self.block_size);
        odd.or(Some(last).filter(|last| last.len() > self.block_size)).map(Block::len)
    }

    fn remove(&mut self, hashes: impl Iterator<Item = EngineHash>, batch: &mut Batch) {
        let mut by_tier: Vec<(Tier, Vec<EngineHash>)> = Vec::new();
        for hash in hashes {
            let tier = match self.blocks.remove(&hash) {
                Some(Known::Partial(_)) => continue,
                Some(Known::Full(tier)) => tier,
                // The index counts it.
                None => Tier::Gpu,
            };
            match by_tier.iter_mut().find(|(other, _)| *other == tier) {
                Some((_, hashes)) => hashes.push(hash),
                None => by_tier.push((tier, vec![hash])),
            }
        }
        batch.events.extend(by_tier.into_iter().map(|(tier, hashes)| Event::Removed(removed(hashes, tier))));
    }

    fn move_to(&mut self, hash: EngineHash, tier: Tier, batch: &mut Batch) {
        let Entry::Occupied(mut known) = self.blocks.entry(hash) else { return };
        let Known::Full(before) = *known.get() else { return };
        if before == tier {
            return;
        }
        known.insert(Known::Full(tier));
        // There first, so that the block's name is never without a copy.
        batch.events.push(Event::Stored(stored(vec![hash], None, vec![], tier)));
        batch.events.push(Event::Removed(removed(vec![hash], before)));
    }
}

/// A store of plain blocks; without tokens, of blocks that are known by their names.
fn stored(hashes: Vec<EngineHash>, parent: Option<EngineHash>, tokens: Vec<u32>, tier: Tier) -> Stored {
    Stored {
        hashes,
        parent,
        tokens,
        block_size: 0,
        media: vec![],
        lora: None,
        salt: None,
        tier,
        group: Group(0),
    }
}

/// The engine has one copy of a block: with its removal, none is left.
fn removed(hashes: Vec<EngineHash>, tier: Tier) -> Removed {
    Removed { left: vec![0; hashes.len()], hashes, tier, group: Group(0) }
}

#[cfg(test)]
mod tests;
