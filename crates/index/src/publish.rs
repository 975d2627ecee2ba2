//! Writing pages.

use warmroute_routing::hash::SequenceHash;
use warmroute_routing::page::{Generation, Holder, PageHeader, PageWriter, Slot};

use crate::chunk::{BlockId, Chunk, ChunkId, places};
use crate::holders::Reach;
use crate::residency::Residency;

/// Writes pages from the tree as it is. Kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    writer: PageWriter,
    blocks: Vec<Block>,
    /// The holders of each chunk that has a block in the page, ascending by slot, chunk after chunk.
    holders: Vec<(Slot, Reach)>,
}

/// A block that stands in the page.
#[derive(Clone, Copy, Debug)]
struct Block {
    hash: SequenceHash,
    /// No block is before it.
    is_root: bool,
    id: BlockId,
    /// How many blocks of its chunk are before it.
    before: u8,
    crowded: bool,
    /// Its chunk's among all holders.
    holders: (u32, u32),
}

// === impl Publisher ===

impl Publisher {
    /// A page's bytes: the published blocks, each with its holders that have a slot now. A page that does not exist is
    /// empty.
    pub(crate) fn page(&mut self, residency: &Residency, generation: Generation, number: u32) -> Vec<u8> {
        let Residency { tree, pages, .. } = residency;
        self.blocks.clear();
        self.holders.clear();
        for head in pages.runs(number, tree) {
            let crowded = tree.get(head).is_some_and(|chunk| chunk.run.crowded);
            for id in if crowded { smallvec::smallvec![head] } else { tree.run(head) } {
                let Some(chunk) = tree.get(id).filter(|chunk| chunk.published > 0) else { continue };
                let holders = self.add_holders(residency, chunk);
                let published = if crowded { 1 } else { chunk.published_places() };
                places(published).for_each(|place| self.add(id, chunk, place, crowded, holders));
            }
        }
        for block in pages.crowd(number) {
            let Some(chunk) = tree.get(block.chunk()) else { continue };
            let holders = self.add_holders(residency, chunk);
            self.add(block.chunk(), chunk, block.place(), false, holders);
        }
        self.write();
        self.writer.finish(PageHeader { number, generation, version: pages.page_version(number) })
    }

    /// Who holds a chunk's blocks, ascending by slot: seats are in another order.
    fn add_holders(&mut self, residency: &Residency, chunk: &Chunk) -> (u32, u32) {
        let start = self.holders.len();
        let published = chunk.holders.iter().filter(|holding| holding.reach.any() > 0);
        self.holders.extend(
            published.filter_map(|holding| Some((residency.seats.slot(holding.seat)?, holding.reach))),
        );
        if let Some(added) = self.holders.get_mut(start..) {
            added.sort_unstable_by_key(|(slot, _)| *slot);
        }
        (start as u32, self.holders.len() as u32)
    }

    fn add(&mut self, id: ChunkId, chunk: &Chunk, place: usize, crowded: bool, holders: (u32, u32)) {
        let Some(hash) = chunk.hash(place) else { return };
        let before = (place as u8).saturating_sub(chunk.first);
        let (is_root, id) = (chunk.parent.is_none() && before == 0, id.block(place));
        self.blocks.push(Block { hash, is_root, id, before, crowded, holders });
    }

    fn write(&mut self) {
        // A feeder that tells local hashes can name a first block as another one is named that comes later. A page has a
        // hash once: then the block that is somewhere stands, not the one that is nowhere but in that event.
        self.blocks.sort_unstable_by_key(|block| (block.hash, block.is_root, block.id));
        self.blocks.dedup_by_key(|block| block.hash);
        for block in &self.blocks {
            let (start, end) = block.holders;
            let holders = self.holders.get(start as usize..end as usize).unwrap_or_default();
            let mut holders = holders
                .iter()
                .filter_map(|(slot, reach)| {
                    Some(Holder { slot: *slot, tier: reach.tier(block.before.into())? })
                })
                .peekable();
            match block.crowded {
                _ if holders.peek().is_none() => {}
                true => self.writer.crowded(block.hash, holders),
                false => self.writer.record(block.hash, holders),
            }
        }
    }
}
