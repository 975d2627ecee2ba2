//! The blocks that no request holds, in the order in which they will be taken.

use std::collections::BTreeMap;

use super::BlockId;

/// A place in the queue. A block keeps it to leave the queue early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(i64);

/// Taken from the front, with removal from the middle: a hit takes its blocks out wherever they stand. Blocks with
/// content enter at the back when their last holder leaves, so their order is by last use. Blocks without content enter
/// at the front: taking them costs nothing.
#[derive(Debug, Default)]
pub(super) struct FreeQueue {
    blocks: BTreeMap<Place, BlockId>,
    /// The place after the last.
    back: i64,
    /// The place of the first block at the front, going down.
    front: i64,
}

// === impl FreeQueue ===

impl FreeQueue {
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn push_back(&mut self, block: BlockId) -> Place {
        let place = Place(self.back);
        self.back += 1;
        self.blocks.insert(place, block);
        place
    }

    pub(super) fn push_front(&mut self, block: BlockId) -> Place {
        self.front -= 1;
        let place = Place(self.front);
        self.blocks.insert(place, block);
        place
    }

    pub(super) fn pop(&mut self) -> Option<BlockId> {
        self.blocks.pop_first().map(|(_, block)| block)
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.blocks.remove(&place);
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.blocks.values().copied()
    }
}
