//! Applying what an engine stores and removes.

use warmroute_routing::Tier;
use warmroute_routing::hash::Namespace;

use crate::chunk::BlockId;
use crate::content::Content;
use crate::copies::{Copies, Taken};
use crate::event::{EngineHash, Group};
use crate::names::{Bound, Table};
use crate::orphans::Orphans;
use crate::residency::{Blocks, Residency};
use crate::seats::SeatId;
use crate::stats::Applied;
use crate::worker::BlockName;

/// One event being applied to one worker.
pub(crate) struct Change<'a> {
    pub(crate) residency: &'a mut Residency,
    pub(crate) table: &'a mut Table,
    pub(crate) orphans: &'a mut Orphans,
    pub(crate) seat: SeatId,
    pub(crate) group: Group,
    pub(crate) tier: Tier,
    pub(crate) max_orphans: usize,
    pub(crate) applied: Applied,
    /// Blocks of one chunk that the worker holds now, or no longer, which the residency is still to be told: an event names
    /// one after another, and what follows from it is found for all of them at once.
    pub(crate) pending: Option<Blocks>,
}

/// What comes before a block.
#[derive(Clone, Copy, Debug)]
enum Above {
    /// Nothing: it is a prompt's first.
    Nothing(Namespace),
    /// A block that is known. The worker holds it, so it is not pruned meanwhile.
    Block(BlockId),
    /// A block that is known by its name only.
    Unknown(BlockName),
}

// === impl Change ===

impl Change<'_> {
    /// Stores a chain of blocks after the one that the worker calls `parent`.
    pub(crate) fn store<'c>(
        &mut self,
        parent: Option<EngineHash>,
        namespace: Namespace,
        mut blocks: impl Iterator<Item = (EngineHash, Content<'c>)> + Clone,
    ) {
        let mut above = match parent {
            None => Above::Nothing(namespace),
            Some(parent) => match self.table.get(parent) {
                Some(block) => Above::Block(block),
                None => Above::Unknown(self.name(parent)),
            },
        };
        self.store_plain(&mut above, &mut blocks);
        for (hash, content) in blocks {
            above = match self.store_one(above, hash, content) {
                Some(block) => Above::Block(block),
                None => Above::Unknown(self.name(hash)),
            };
        }
        self.hold_pending();
        self.trim_orphans();
    }

    /// Stores blocks from the first on as long as nothing is unusual about them: their places are known, nobody waits for
    /// them, and no name has meant another block. Goes on to what is left.
    ///
    /// Places first, names then: so the processor need not wait for one name's memory before it asks for the next one's.
    fn store_plain<'c>(
        &mut self,
        above: &mut Above,
        blocks: &mut (impl Iterator<Item = (EngineHash, Content<'c>)> + Clone),
    ) {
        if !self.orphans.is_empty() {
            return;
        }
        let mut chain = std::mem::take(&mut self.residency.chain);
        chain.clear();
        let mut contents = blocks.clone().map(|(_, content)| content);
        let tree = &mut self.residency.tree;
        let first = match *above {
            Above::Block(block) => Some(block),
            Above::Unknown(_) => None,
            Above::Nothing(namespace) => contents.next().and_then(|content| {
                let block = tree.root(content.local(namespace), namespace)?;
                chain.push(block);
                Some(block)
            }),
        };
        if let Some(first) = first {
            tree.descend(
                first,
                contents.map(|content| move |namespace| content.local(namespace)),
                &mut chain,
            );
        }
        let mut left = blocks.clone();
        for block in &chain {
            let Some((hash, _)) = left.next() else { break };
            match self.table.bind(hash, *block, self.tier) {
                Bound::Anew | Bound::FirstInTier => self.hold_later(*block),
                Bound::Further => {}
                // What comes after it is entered again: it may be pruned with what the name has meant.
                Bound::Otherwise => break,
            }
            self.applied.stored += 1;
            *above = Above::Block(*block);
            blocks.next();
        }
        self.residency.chain = chain;
    }

    /// Stores blocks of which only the names are told: those that are known have one copy more.
    pub(crate) fn store_known(&mut self, hashes: &[EngineHash]) {
        for hash in hashes {
            if let Some(block) = self.table.get(*hash) {
                self.bind(*hash, block);
            } else if self.orphans.add_copy(self.name(*hash), self.tier) {
                self.applied.orphaned += 1;
            } else {
                self.applied.skipped += 1;
            }
        }
        self.hold_pending();
    }

    /// Takes one copy each of blocks away, after which there are as many as is told beside the name, where it is.
    pub(crate) fn remove(&mut self, blocks: impl IntoIterator<Item = (EngineHash, Option<u32>)>) {
        for (hash, left) in blocks {
            let taken = match self.table.take(hash, self.tier, left) {
                None => self.orphans.take_copy(self.name(hash), self.tier, left),
                Some((_, Taken::Nothing)) => false,
                Some((_, Taken::One)) => true,
                Some((block, Taken::Last)) => {
                    if let Some(blocks) = self.gather(block) {
                        self.residency.release(blocks, self.seat, self.tier);
                    }
                    true
                }
            };
            *(if taken { &mut self.applied.removed } else { &mut self.applied.unknown_removed }) += 1;
        }
        if let Some(blocks) = self.pending.take() {
            self.residency.release(blocks, self.seat, self.tier);
        }
    }

    /// What the event did, and the group if it has no names any more.
    pub(crate) fn end(self) -> (Applied, Option<Group>) {
        (self.applied, self.table.is_empty().then_some(self.group))
    }

    fn name(&self, hash: EngineHash) -> BlockName {
        BlockName { group: self.group, hash }
    }

    /// Adds a block to those that are pending. Returns what was pending if it is of another chunk, or has the block already
    /// under another name.
    fn gather(&mut self, block: BlockId) -> Option<Blocks> {
        match &mut self.pending {
            Some(pending) if pending.chunk == block.chunk() && pending.places & block.bit() == 0 => {
                pending.places |= block.bit();
                None
            }
            pending => pending.replace(Blocks::one(block)),
        }
    }

    fn hold_later(&mut self, block: BlockId) {
        if let Some(blocks) = self.gather(block) {
            self.residency.hold(blocks, self.seat, self.tier);
        }
    }

    fn hold_pending(&mut self) {
        if let Some(blocks) = self.pending.take() {
            self.residency.hold(blocks, self.seat, self.tier);
        }
    }

    /// Stores a block. Returns its place, if that is known.
    fn store_one(&mut self, above: Above, hash: EngineHash, content: Content<'_>) -> Option<BlockId> {
        let tree = &mut self.residency.tree;
        let block = match above {
            Above::Nothing(namespace) => tree.root(content.local(namespace), namespace),
            Above::Block(parent) => tree.child(parent, |namespace| content.local(namespace)),
            // The block itself may be known where its parent is not: another copy is stored then.
            Above::Unknown(parent) => match self.table.get(hash) {
                Some(block) if tree.is(block, |namespace| content.local(namespace)) => Some(block),
                _ => {
                    self.orphan(hash, parent, content);
                    return None;
                }
            },
        };
        let Some(block) = block else {
            self.applied.skipped += 1;
            return None;
        };
        self.bind(hash, block);
        Some(block)
    }

    /// Lets a name stand for one more copy of a block. If it is a new name, blocks that waited for it find their place.
    fn bind(&mut self, hash: EngineHash, block: BlockId) {
        self.applied.stored += 1;
        match self.table.bind(hash, block, self.tier) {
            Bound::Anew => {
                self.hold_later(block);
                if !self.orphans.is_empty() {
                    self.settle_orphans(hash, block);
                }
            }
            Bound::FirstInTier => self.hold_later(block),
            Bound::Further => {}
            Bound::Otherwise => {
                // The new one first: the old one may be all that the new one's place in the tree hangs on.
                self.hold_later(block);
                self.hold_pending();
                self.unbind(hash);
                self.table.put(hash, block, Copies::one(self.tier));
                self.settle_orphans(hash, block);
            }
        }
    }

    /// Forgets what a name stood for, since it stands for another block now.
    fn unbind(&mut self, hash: EngineHash) {
        let Some((block, copies)) = self.table.remove(hash) else { return };
        // What is pending must be held first: it may hang on this block.
        self.hold_pending();
        copies.tiers().for_each(|tier| self.residency.release(Blocks::one(block), self.seat, tier));
        self.applied.renamed += 1;
    }

    /// A name that is known now waits no longer, and neither do the blocks that waited for it, nor those that waited for
    /// them. This ends, whatever waits for whatever: each turn takes an orphan away and adds none.
    fn settle_orphans(&mut self, hash: EngineHash, block: BlockId) {
        if self.orphans.is_empty() {
            return;
        }
        self.hold_pending();
        if self.orphans.remove(self.name(hash)).is_some() {
            self.applied.dropped_orphans += 1;
        }
        let mut placed = vec![(self.name(hash), block)];
        while let Some((parent, parent_block)) = placed.pop() {
            while let Some((name, orphan)) = self.orphans.take_child(parent) {
                let content = |namespace| orphan.content.local(namespace);
                let Some(block) = self.residency.tree.child(parent_block, content) else { return };
                for tier in orphan.copies.tiers() {
                    self.residency.hold(Blocks::one(block), self.seat, tier);
                }
                self.unbind(name.hash);
                self.table.put(name.hash, block, orphan.copies);
                self.applied.attached += 1;
                placed.push((name, block));
            }
        }
    }

    fn orphan(&mut self, hash: EngineHash, parent: BlockName, content: Content<'_>) {
        self.unbind(hash);
        if self.orphans.add(self.name(hash), parent, content, self.tier) {
            self.applied.dropped_orphans += 1;
        }
        self.applied.orphaned += 1;
    }

    fn trim_orphans(&mut self) {
        while self.orphans.len() > self.max_orphans && self.orphans.drop_oldest() {
            self.applied.dropped_orphans += 1;
        }
    }
}
