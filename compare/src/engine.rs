//! What an engine tells, in a form that is turned into ours and theirs.

use std::ops::Range;

use warmroute_routing::hash::LocalHash;

use crate::blocks::Chain;
use crate::dice::mix;

/// One rank of one engine, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The engine.
    pub engine: u32,
    /// The rank in it.
    pub rank: u32,
}

/// One event of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Blocks were stored, each after the one before it.
    Stored {
        /// The name of the block before the first.
        parent: Option<u64>,
        /// Name and content of each.
        blocks: Vec<(u64, LocalHash)>,
    },
    /// A copy of each of these blocks is gone.
    Removed(Vec<u64>),
    /// All is gone.
    Cleared,
}

/// How an engine names its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Every engine calls a block the same.
    Shared,
    /// Each engine has its own seed.
    Own,
}

// === impl Names ===

impl Names {
    /// What an engine calls the block with this sequence hash.
    pub fn of(self, rank: Rank, hash: u64) -> u64 {
        match self {
            Self::Shared => mix(hash),
            Self::Own => mix(hash ^ mix(u64::from(rank.engine) + 1)),
        }
    }
}

/// The event with which a rank stores a part of a chain.
pub fn stored(chain: &Chain, part: Range<usize>, names: Names, rank: Rank) -> Told {
    let name = |i: usize| chain.hashes.get(i).map(|hash| names.of(rank, hash.0));
    let parent = part.start.checked_sub(1).and_then(name);
    let blocks = part.filter_map(|i| Some((name(i)?, *chain.locals.get(i)?))).collect();
    Told::Stored { parent, blocks }
}

/// The event with which a rank drops a part of a chain, deepest block first.
pub fn removed(chain: &Chain, part: Range<usize>, names: Names, rank: Rank) -> Told {
    let hashes = chain.hashes.get(part).unwrap_or_default();
    Told::Removed(hashes.iter().rev().map(|hash| names.of(rank, hash.0)).collect())
}
