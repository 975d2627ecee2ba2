//! Writing pages.

use smallvec::SmallVec;
use warmroute_routing::hash::SequenceHash;
use warmroute_routing::page::{Generation, Holder, PageHeader, PageWriter};

use crate::residency::Residency;
use crate::tree::NodeId;

/// Writes pages from the tree as it is. Kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    writer: PageWriter,
    blocks: Vec<(SequenceHash, NodeId)>,
}

// === impl Publisher ===

impl Publisher {
    /// A page's bytes: the published blocks, each with its holders that have a slot now. A page that does not exist is
    /// empty.
    pub(crate) fn page(&mut self, residency: &Residency, generation: Generation, number: u32) -> Vec<u8> {
        let Residency { tree, pages, .. } = residency;
        self.blocks.clear();
        self.blocks.extend(pages.nodes(number, tree).filter_map(|id| Some((tree.get(id)?.hash, id))));
        self.blocks.sort_unstable_by_key(|(hash, _)| *hash);
        for (hash, id) in &self.blocks {
            let holders = holders(residency, *id);
            match tree.get(*id).is_some_and(|node| node.run.crowded) {
                _ if holders.is_empty() => {}
                true => self.writer.crowded(*hash, holders),
                false => self.writer.record(*hash, holders),
            }
        }
        self.writer.finish(PageHeader { number, generation, version: pages.page_version(number) })
    }
}

/// Who holds a published block, ascending by slot: seats are in another order.
fn holders(residency: &Residency, id: NodeId) -> SmallVec<[Holder; 8]> {
    let Some(node) = residency.tree.get(id) else { return SmallVec::new() };
    let holder = |holding: &crate::holders::Holding| {
        Some(Holder { tier: holding.published?, slot: residency.seats.slot(holding.seat)? })
    };
    let mut holders: SmallVec<[Holder; 8]> = node.holders.iter().filter_map(holder).collect();
    holders.sort_unstable();
    holders
}
