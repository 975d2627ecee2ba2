//! Chains of blocks, as both sides are told of them.

use warmroute_routing::hash::{LocalHash, SequenceHash};

use crate::dice::mix;

/// A chain of blocks from a prompt's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// What is in each block.
    pub locals: Vec<LocalHash>,
    /// What names each block together with those before it.
    pub hashes: Vec<SequenceHash>,
}

// === impl Chain ===

impl Chain {
    /// A chain of blocks with these contents.
    pub fn new(locals: Vec<LocalHash>) -> Self {
        let hashes = SequenceHash::chain(locals.iter().copied());
        Self { locals, hashes }
    }

    /// A chain of `blocks` blocks that no other seed's chain shares.
    pub fn drawn(seed: u64, blocks: usize) -> Self {
        Self::new((0..blocks as u64).map(|i| local(seed, i)).collect())
    }

    /// This chain's first `shared` blocks, then others, `blocks` in all.
    pub fn forked(&self, shared: usize, seed: u64, blocks: usize) -> Self {
        let own = (shared as u64..blocks as u64).map(|i| local(seed, i));
        Self::new(self.locals.iter().take(shared).copied().chain(own).collect())
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.locals.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.locals.is_empty()
    }
}

fn local(seed: u64, position: u64) -> LocalHash {
    LocalHash(mix(mix(seed) ^ position))
}
