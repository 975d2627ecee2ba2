//! Blocks that follow one another.

use std::num::NonZeroU32;

use warmroute_routing::hash::{Namespace, SequenceHash};
use warmroute_routing::page::RUN_BLOCKS;

use crate::holders::Holders;

/// Places in a chunk: those of a run.
pub(crate) const PLACES: usize = RUN_BLOCKS as usize;
/// Bits that tell a place in a block's number.
const PLACE_BITS: u32 = RUN_BLOCKS.ilog2();
/// A chunk's place in the tree's memory. It may mean another chunk once this one has been pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkId(NonZeroU32);

/// A block: its chunk, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId(NonZeroU32);

/// Places of a chunk, a bit for each, the first place's the lowest.
pub(crate) type Places = u16;

/// Blocks that follow one another in one run. One that is free has none.
#[derive(Debug)]
pub(crate) struct Chunk {
    hashes: [SequenceHash; PLACES],
    /// What the blocks' tokens were hashed under, and those of all blocks below them.
    pub(crate) namespace: Namespace,
    pub(crate) holders: Holders,
    /// The first of the branches that part after each place but the last.
    pub(crate) forks: Option<Box<[Option<ChunkId>; PLACES - 1]>>,
    /// The first of the runs that go on after the last place.
    below: Option<ChunkId>,
    /// The block before the first; none for a prompt's first block.
    pub(crate) parent: Option<BlockId>,
    /// The chunk with the run's first block; none where it is this one.
    pub(crate) head: Option<ChunkId>,
    pub(crate) siblings: Links,
    /// The other runs of the page, where this chunk has a run's first block.
    page: Links,
    /// What the chunk with a run's first block knows of the run.
    pub(crate) run: Run,
    /// The place of the first block.
    pub(crate) first: u8,
    /// The place after the last block.
    pub(crate) end: u8,
    /// How many of its blocks are published for anybody, from the first on.
    pub(crate) published: u8,
}

/// How full a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its published blocks, in all branches.
    pub(crate) published: u32,
    /// Its blocks, but for the first, stand in the pages of their own hashes.
    pub(crate) crowded: bool,
}

/// Which of a chunk's two lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum List {
    Siblings,
    Page,
}

/// A chunk's neighbours in a list whose first chunk is known elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    pub(crate) previous: Option<ChunkId>,
    pub(crate) next: Option<ChunkId>,
}

/// The places of a chunk whose bits are set, ascending.
pub(crate) fn places(mut bits: Places) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        (place < PLACES).then(|| {
            bits &= bits - 1;
            place
        })
    })
}

/// The places from one up to, but not including, another.
pub(crate) fn span(from: u8, to: u8) -> Places {
    let below = |place: u8| ((1u32 << u32::from(place).min(RUN_BLOCKS)) - 1) as Places;
    below(to) & !below(from)
}

// === impl ChunkId ===

impl ChunkId {
    pub(crate) fn new(index: usize) -> Option<Self> {
        let number = u32::try_from(index).ok()?.checked_add(1)?;
        NonZeroU32::new(number).filter(|_| number <= u32::MAX >> PLACE_BITS).map(Self)
    }

    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The block in a place of this chunk.
    pub(crate) fn block(self, place: usize) -> BlockId {
        let number = self.0.get() << PLACE_BITS | (place % PLACES) as u32;
        // A chunk's number is not 0 and has no bit that the shift could lose.
        BlockId(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
    }
}

// === impl BlockId ===

impl BlockId {
    pub(crate) fn chunk(self) -> ChunkId {
        ChunkId(NonZeroU32::new(self.0.get() >> PLACE_BITS).unwrap_or(NonZeroU32::MIN))
    }

    pub(crate) fn place(self) -> usize {
        self.0.get() as usize % PLACES
    }

    /// The block's bit among its chunk's places.
    pub(crate) fn bit(self) -> Places {
        1 << self.place()
    }
}

// === impl Chunk ===

impl Chunk {
    pub(crate) fn new(hash: SequenceHash, namespace: Namespace, parent: Option<BlockId>, first: u8) -> Self {
        let mut chunk = Self {
            hashes: [SequenceHash(0); PLACES],
            namespace,
            holders: Holders::default(),
            forks: None,
            below: None,
            parent,
            head: None,
            siblings: Links::default(),
            page: Links::default(),
            run: Run::default(),
            first,
            end: first,
            published: 0,
        };
        chunk.push(hash);
        chunk
    }

    /// Whether the chunk goes on with this block in a place: it is there already (false), or is added (true), which it is not
    /// where others part.
    pub(crate) fn go_on(&mut self, place: usize, hash: SequenceHash) -> Option<bool> {
        let end = usize::from(self.end);
        if place < end {
            return (self.hashes.get(place) == Some(&hash)).then_some(false);
        }
        if place > end || place == PLACES || self.first_child(place - 1).is_some() {
            return None;
        }
        self.push(hash);
        Some(true)
    }

    /// Adds a block after the last. There must be a place for it.
    pub(crate) fn push(&mut self, hash: SequenceHash) {
        if let Some(last) = self.hashes.get_mut(usize::from(self.end)) {
            *last = hash;
            self.end += 1;
        }
    }

    /// The hash of the block in a place, if there is one.
    pub(crate) fn hash(&self, place: usize) -> Option<SequenceHash> {
        let is_here = (usize::from(self.first)..usize::from(self.end)).contains(&place);
        self.hashes.get(place).copied().filter(|_| is_here)
    }

    /// The places of the blocks that are published for anybody.
    pub(crate) fn published_places(&self) -> Places {
        span(self.first, self.first + self.published)
    }

    /// Whether the chunk has its run's first block.
    pub(crate) fn is_head(&self) -> bool {
        self.first == 0
    }

    pub(crate) fn first_child(&self, place: usize) -> Option<ChunkId> {
        match &self.forks {
            _ if place + 1 == PLACES => self.below,
            Some(forks) => forks.get(place).copied().flatten(),
            None => None,
        }
    }

    pub(crate) fn set_first_child(&mut self, place: usize, first: Option<ChunkId>) {
        if place + 1 == PLACES {
            self.below = first;
            return;
        }
        if let Some(child) = self.forks.get_or_insert_default().get_mut(place) {
            *child = first;
        }
        if first.is_none() && self.forks.as_ref().is_some_and(|forks| forks.iter().all(Option::is_none)) {
            self.forks = None;
        }
    }

    /// The place after the last block that somebody holds or that has another chunk below it.
    pub(crate) fn needed_end(&self) -> u8 {
        let held = self.holders.end_held(self.end);
        let below = match (&self.below, &self.forks) {
            (Some(_), _) => PLACES,
            (None, Some(forks)) => forks.iter().rposition(Option::is_some).map_or(0, |place| place + 1),
            (None, None) => 0,
        };
        held.max(below as u8).clamp(self.first, self.end)
    }

    pub(crate) fn links(&self, list: List) -> Links {
        match list {
            List::Siblings => self.siblings,
            List::Page => self.page,
        }
    }

    pub(crate) fn links_mut(&mut self, list: List) -> &mut Links {
        match list {
            List::Siblings => &mut self.siblings,
            List::Page => &mut self.page,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_by_their_bits() {
        assert_eq!(places(span(3, 6)).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(places(span(0, 16)).count(), 16);
        assert_eq!((span(4, 4), span(15, 16)), (0, 1 << 15));
    }
}
