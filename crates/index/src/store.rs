//! Applying what an engine stores and removes.

use warmroute_routing::Tier;
use warmroute_routing::hash::Namespace;

use crate::content::Content;
use crate::copies::{Copies, Taken};
use crate::event::{EngineHash, Group};
use crate::residency::Residency;
use crate::seats::SeatId;
use crate::stats::Applied;
use crate::tree::NodeId;
use crate::worker::{BlockName, Ledger, Named};

/// One event being applied to one worker.
pub(crate) struct Change<'a> {
    pub(crate) residency: &'a mut Residency,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) seat: SeatId,
    pub(crate) group: Group,
    pub(crate) tier: Tier,
    pub(crate) max_orphans: usize,
    pub(crate) applied: Applied,
}

/// What comes before a block.
#[derive(Clone, Copy, Debug)]
enum Above {
    /// Nothing: it is a prompt's first.
    Nothing(Namespace),
    /// A block that is known. The worker holds it, so it is not pruned meanwhile.
    Node(NodeId),
    /// A block that is known by its name only.
    Unknown(BlockName),
}

/// What became of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// It has not stood for this block before.
    Anew,
    /// It stands for more copies of the block than before.
    Further,
    /// The block has more names already than can be counted.
    Refused,
}

// === impl Change ===

impl Change<'_> {
    /// Stores a chain of blocks after the one that the worker calls `parent`.
    pub(crate) fn store<'c>(
        &mut self,
        parent: Option<EngineHash>,
        namespace: Namespace,
        blocks: impl IntoIterator<Item = (EngineHash, Content<'c>)>,
    ) {
        let mut above = match parent.map(|parent| self.name(parent)) {
            None => Above::Nothing(namespace),
            Some(name) => match self.ledger.names.get(&name) {
                Some(named) => Above::Node(named.node),
                None => Above::Unknown(name),
            },
        };
        for (hash, content) in blocks {
            let name = self.name(hash);
            above = match self.store_one(above, name, content) {
                Some(node) => Above::Node(node),
                None => Above::Unknown(name),
            };
        }
        self.trim_orphans();
    }

    /// Stores blocks of which only the names are told: those that are known have one copy more.
    pub(crate) fn store_known(&mut self, hashes: &[EngineHash]) {
        for hash in hashes {
            let name = self.name(*hash);
            if let Some(node) = self.ledger.names.get(&name).map(|named| named.node) {
                self.bind(name, node);
            } else if self.ledger.orphans.add_copy(name, self.tier) {
                self.applied.orphaned += 1;
            } else {
                self.applied.skipped += 1;
            }
        }
    }

    /// Takes one copy each of blocks away, after which there are as many as is told beside the name, where it is.
    pub(crate) fn remove(&mut self, blocks: impl IntoIterator<Item = (EngineHash, Option<u32>)>) {
        for (hash, left) in blocks {
            let name = self.name(hash);
            if self.remove_one(name, left) || self.ledger.orphans.take_copy(name, self.tier, left) {
                self.applied.removed += 1;
            } else {
                self.applied.unknown_removed += 1;
            }
        }
    }

    fn name(&self, hash: EngineHash) -> BlockName {
        BlockName { group: self.group, hash }
    }

    /// Stores a block. Returns its place, if that is known.
    fn store_one(&mut self, above: Above, name: BlockName, content: Content<'_>) -> Option<NodeId> {
        let tree = &mut self.residency.tree;
        let node = match above {
            Above::Nothing(namespace) => tree.root(content.local(namespace), namespace),
            Above::Node(parent) => {
                let namespace = tree.get(parent)?.namespace;
                tree.child(parent, content.local(namespace))
            }
            // The block itself may be known where its parent is not: another copy is stored then.
            Above::Unknown(parent) => match self.ledger.names.get(&name).map(|named| named.node) {
                Some(node) if tree.is(node, |namespace| content.local(namespace)) => Some(node),
                _ => {
                    self.orphan(name, parent, content);
                    return None;
                }
            },
        };
        let Some(node) = node else {
            self.applied.skipped += 1;
            return None;
        };
        self.bind(name, node);
        Some(node)
    }

    /// Lets `name` stand for one more copy of a block. If it is a new name, blocks that waited for it find their place.
    fn bind(&mut self, name: BlockName, node: NodeId) {
        match self.bind_copies(name, node, Copies::one(self.tier)) {
            Bound::Anew => {
                self.applied.stored += 1;
                self.attach_below(name, node);
            }
            Bound::Further => self.applied.stored += 1,
            Bound::Refused => self.applied.skipped += 1,
        }
    }

    /// Lets `name` stand for a further copy of a block in each of the tiers, or for exactly these copies if it is new.
    fn bind_copies(&mut self, name: BlockName, node: NodeId, copies: Copies) -> Bound {
        let known = self.ledger.names.get_mut(&name).filter(|named| named.node == node);
        let held = known.as_ref().map(|named| named.copies).unwrap_or_default();
        let mut first = copies.tiers().filter(|tier| !held.has(*tier));
        if first.any(|tier| !self.residency.can_hold(node, self.seat, tier)) {
            return Bound::Refused;
        }
        if let Some(named) = known {
            for tier in copies.tiers() {
                if named.copies.add(tier) {
                    self.residency.hold(node, self.seat, tier);
                }
            }
            return Bound::Further;
        }
        // The new one first: the old one may be all that the new one's place in the tree hangs on.
        copies.tiers().for_each(|tier| self.residency.hold(node, self.seat, tier));
        self.unbind(name);
        if self.ledger.orphans.remove(name).is_some() {
            self.applied.dropped_orphans += 1;
        }
        self.ledger.names.insert(name, Named { node, copies });
        Bound::Anew
    }

    /// Forgets what a name stood for, since it stands for another block now.
    fn unbind(&mut self, name: BlockName) {
        let Some(named) = self.ledger.names.remove(&name) else { return };
        named.copies.tiers().for_each(|tier| self.residency.release(named.node, self.seat, tier));
        self.applied.renamed += 1;
    }

    /// Gives the blocks that waited for `name` their place, and those that waited for them. This ends, whatever waits
    /// for whatever: each turn takes an orphan away and adds none.
    fn attach_below(&mut self, name: BlockName, node: NodeId) {
        if self.ledger.orphans.is_empty() {
            return;
        }
        let mut placed = vec![(name, node)];
        while let Some((parent, parent_node)) = placed.pop() {
            while let Some((name, orphan)) = self.ledger.orphans.take_child(parent) {
                let tree = &mut self.residency.tree;
                let Some(namespace) = tree.get(parent_node).map(|node| node.namespace) else { return };
                let Some(node) = tree.child(parent_node, orphan.content.local(namespace)) else { return };
                if self.bind_copies(name, node, orphan.copies) == Bound::Refused {
                    self.applied.skipped += 1;
                    continue;
                }
                self.applied.attached += 1;
                placed.push((name, node));
            }
        }
    }

    fn orphan(&mut self, name: BlockName, parent: BlockName, content: Content<'_>) {
        self.unbind(name);
        if self.ledger.orphans.add(name, parent, content, self.tier) {
            self.applied.dropped_orphans += 1;
        }
        self.applied.orphaned += 1;
    }

    fn trim_orphans(&mut self) {
        while self.ledger.orphans.len() > self.max_orphans && self.ledger.orphans.drop_oldest() {
            self.applied.dropped_orphans += 1;
        }
    }

    /// Takes one copy of a block whose place is known. False if there is none.
    fn remove_one(&mut self, name: BlockName, left: Option<u32>) -> bool {
        let Some(named) = self.ledger.names.get_mut(&name) else { return false };
        match named.copies.take(self.tier, left) {
            Taken::Nothing => return false,
            Taken::One => return true,
            Taken::Last => {}
        }
        let node = named.node;
        if named.copies.is_empty() {
            self.ledger.names.remove(&name);
        }
        self.residency.release(node, self.seat, self.tier);
        true
    }
}
