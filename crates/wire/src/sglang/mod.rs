//! SGLang from 0.5.6 on.
//!
//! A block's name is chained: it says what comes before the block, the cache salt included. It does not say the adapter,
//! so equal tokens under two adapters have one name, and removals tell no adapter:
//!
//! * An adapter that is told (`lora_name`, since 0.5.22) goes into the names here. A removal takes a copy from the name
//!   under every adapter that has been seen: it may take too many, so that less is promised than is there, never more.
//! * What is not told (`extra_key`) makes further copies of the plain block.
//!
//! Before 0.5.6 a block is named by Python's hash of its own tokens, wherever it is, and a node's first block is told
//! without its parent: such an engine is recognised by that hash, and refused.

use std::collections::BTreeMap;

use warmroute_index::event::{EngineHash, Removed, Stored};
use xxhash_rust::xxh3::xxh3_64;

use super::batch::{Skipped, Unsupported};
use super::events::{self, NotIndexed, RawRemoved, RawStored, Token};
use super::python_hash;

/// Adapters that are kept apart. Each makes removals dearer; blocks of further ones are left out.
const MAX_ADAPTERS: usize = 256;

/// What one rank of SGLang has said.
#[derive(Clone, Debug, Default)]
pub(super) struct Dialect {
    /// What each adapter that was seen adds to the names of its blocks.
    adapters: BTreeMap<String, u64>,
}

// === impl Dialect ===

impl Dialect {
    /// What an adapter adds to names; none where there is no room for it.
    fn mark_of(&mut self, lora: &str) -> Option<u64> {
        if let Some(mark) = self.adapters.get(lora) {
            return Some(*mark);
        }
        if self.adapters.len() >= MAX_ADAPTERS {
            return None;
        }
        let mark = xxh3_64(lora.as_bytes());
        self.adapters.insert(lora.to_owned(), mark);
        Some(mark)
    }
}

impl events::Dialect for Dialect {
    /// The rank came with 0.4.8.
    fn begin(&mut self, parts: Option<u32>) -> Result<(), Unsupported> {
        if parts == Some(2) { Err(Unsupported::UnchainedHashes) } else { Ok(()) }
    }

    fn stored(&mut self, mut raw: RawStored) -> Result<Stored, NotIndexed> {
        // The medium came with 0.5.9, so later releases are not suspected.
        if !raw.names_medium() && raw.blocks().any(|(hash, tokens)| is_unchained(hash, tokens)) {
            return Err(NotIndexed::Unsupported(Unsupported::UnchainedHashes));
        }
        if !raw.is_aligned() {
            return Err(NotIndexed::Skipped(Skipped::Misaligned));
        }
        if let Some(lora) = raw.lora().map(str::to_owned) {
            let mark = self.mark_of(&lora).ok_or(NotIndexed::Skipped(Skipped::TooManyAdapters))?;
            raw.rename(|hash| EngineHash(hash.0 ^ mark));
        }
        raw.into_event().map_err(NotIndexed::Bad)
    }

    fn removed(&mut self, raw: RawRemoved) -> Result<Removed, NotIndexed> {
        let mut removed = raw.into_event();
        // SGLang does not tell them; if it did, they would not be told by adapter.
        removed.left.clear();
        let plain = removed.hashes.len();
        for mark in self.adapters.values() {
            let marked: Vec<_> =
                removed.hashes.iter().take(plain).map(|hash| EngineHash(hash.0 ^ mark)).collect();
            removed.hashes.extend(marked);
        }
        Ok(removed)
    }
}

/// Whether a name is Python's hash of the tokens. A chained name is so by chance once in 2^64.
fn is_unchained(hash: EngineHash, tokens: &[Token]) -> bool {
    let items = tokens.iter().map(|token| match *token {
        Token::Id(id) => u64::from(id),
        Token::Pair(first, second) => python_hash::tuple([first, second].map(u64::from).into_iter()),
        Token::Text(name) => name,
    });
    hash.0 == python_hash::tuple(items)
}

#[cfg(test)]
mod tests;
