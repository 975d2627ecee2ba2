//! The tree of blocks, shared by all workers.

use std::num::NonZeroU32;

use hashbrown::HashMap;
use smallvec::SmallVec;
use warmroute_routing::Tier;
use warmroute_routing::hash::{LocalHash, Namespace, SequenceHash};
use warmroute_routing::page::RUN_BLOCKS;

use crate::holders::Holders;
use crate::seats::SeatId;

/// A block's place in the tree's memory. It may mean another block once the block has been pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(NonZeroU32);

/// Blocks by sequence hash, each below the one before it.
///
/// A block is here as long as a worker holds it or another block is below it: so a chain with a hole stays whole.
/// Memory is reused, so it is as large as the most blocks there ever were at a time.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    by_hash: HashMap<SequenceHash, NodeId>,
}

/// One block.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) hash: SequenceHash,
    /// What the block's tokens were hashed under, and those of all blocks below it.
    pub(crate) namespace: Namespace,
    /// None for a prompt's first block.
    pub(crate) parent: Option<NodeId>,
    first_child: Option<NodeId>,
    siblings: Links,
    /// The other published blocks of its page.
    page: Links,
    /// The first block of its run; none where it is that itself.
    head: Option<NodeId>,
    /// What a run's first block knows of the run.
    pub(crate) run: Run,
    /// Its place in the run, from 0.
    place: u8,
    pub(crate) holders: Holders,
}

/// How full a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its published blocks, in all branches.
    pub(crate) published: u32,
    /// Its blocks, but for the first, stand in the pages of their own hashes.
    pub(crate) crowded: bool,
}

/// A block's place in its run.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    head: Option<NodeId>,
    place: u8,
}

/// Which of a node's two lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum List {
    Siblings,
    Page,
}

/// A node's neighbours in a list whose first node is known elsewhere.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    previous: Option<NodeId>,
    next: Option<NodeId>,
}

// === impl NodeId ===

impl NodeId {
    fn new(index: usize) -> Option<Self> {
        NonZeroU32::new(u32::try_from(index).ok()?.checked_add(1)?).map(Self)
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

// === impl Node ===

impl Node {
    fn new(hash: SequenceHash, namespace: Namespace, parent: Option<NodeId>, place: Place) -> Self {
        Self {
            head: place.head,
            run: Run::default(),
            place: place.place,
            hash,
            namespace,
            parent,
            first_child: None,
            siblings: Links::default(),
            page: Links::default(),
            holders: Holders::default(),
        }
    }

    fn links(&self, list: List) -> Links {
        match list {
            List::Siblings => self.siblings,
            List::Page => self.page,
        }
    }

    fn links_mut(&mut self, list: List) -> &mut Links {
        match list {
            List::Siblings => &mut self.siblings,
            List::Page => &mut self.page,
        }
    }
}

// === impl Tree ===

impl Tree {
    pub(crate) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.index())
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// How many blocks fit in the memory taken so far.
    pub(crate) fn capacity(&self) -> usize {
        self.nodes.len()
    }

    /// The memory taken for blocks, in bytes: lists of more holders than a block has room for are not counted.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.free.capacity() * size_of::<NodeId>()
            + self.by_hash.allocation_size()
    }

    /// Every block.
    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.by_hash.values().copied()
    }

    /// The block `local` as a prompt's first. None if the tree is full, as for [`Tree::child`].
    pub(crate) fn root(&mut self, local: LocalHash, namespace: Namespace) -> Option<NodeId> {
        self.enter(SequenceHash::root(local), namespace, None)
    }

    /// The block `local` after `parent`. The caller must hold it or prune it.
    pub(crate) fn child(&mut self, parent: NodeId, local: LocalHash) -> Option<NodeId> {
        let Node { hash, namespace, .. } = *self.get(parent)?;
        self.enter(hash.child(local), namespace, Some(parent))
    }

    /// The block with this hash, below `parent`. The caller must hold it or prune it.
    pub(crate) fn enter(
        &mut self,
        hash: SequenceHash,
        namespace: Namespace,
        parent: Option<NodeId>,
    ) -> Option<NodeId> {
        // Should two blocks ever collide, the first one's place stands: a node's parent never changes, so there are
        // no cycles whatever the hashes are.
        if let Some(id) = self.by_hash.get(&hash) {
            return Some(*id);
        }
        let place = parent.map_or(Place::default(), |parent| self.place_below(parent));
        let id = self.put(Node::new(hash, namespace, parent, place))?;
        self.by_hash.insert(hash, id);
        if let Some(parent) = parent {
            let first = self.get(parent).and_then(|node| node.first_child);
            let first = self.push_front(List::Siblings, first, id);
            if let Some(node) = self.get_mut(parent) {
                node.first_child = first;
            }
        }
        Some(id)
    }

    /// The place in a run of the blocks after `parent`.
    fn place_below(&self, parent: NodeId) -> Place {
        let Some(node) = self.get(parent) else { return Place::default() };
        let place = node.place + 1;
        match u32::from(place) < RUN_BLOCKS {
            true => Place { head: Some(node.head.unwrap_or(parent)), place },
            false => Place::default(),
        }
    }

    /// The first block of a block's run.
    pub(crate) fn head(&self, id: NodeId) -> NodeId {
        self.get(id).and_then(|node| node.head).unwrap_or(id)
    }

    /// The other blocks of a run, in all its branches.
    pub(crate) fn rest_of_run(&self, head: NodeId) -> Vec<NodeId> {
        let is_of_run = |id: &NodeId| self.get(*id).is_some_and(|node| node.place > 0);
        let mut rest: Vec<_> = self.children(head).filter(is_of_run).collect();
        let mut next = 0;
        while let Some(id) = rest.get(next) {
            rest.extend(self.children(*id).filter(is_of_run).collect::<SmallVec<[NodeId; 4]>>());
            next += 1;
        }
        rest
    }

    fn put(&mut self, node: Node) -> Option<NodeId> {
        if let Some(id) = self.free.pop() {
            *self.get_mut(id)? = node;
            return Some(id);
        }
        let id = NodeId::new(self.nodes.len())?;
        self.nodes.push(node);
        Some(id)
    }

    /// Forgets the block if nothing needs it any more, and then those above it likewise.
    pub(crate) fn prune(&mut self, id: NodeId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let Some(node) = self.get_mut(id) else { return };
            if !node.holders.is_empty() || node.first_child.is_some() {
                return;
            }
            node.holders = Holders::default();
            let (hash, parent) = (node.hash, node.parent);
            // A node that was pruned before keeps its hash, and the block may be somewhere else by now.
            if self.by_hash.get(&hash) != Some(&id) {
                return;
            }
            self.by_hash.remove(&hash);
            if let Some(parent) = parent {
                self.unlink_child(parent, id);
            }
            self.free.push(id);
            next = parent;
        }
    }

    fn unlink_child(&mut self, parent: NodeId, child: NodeId) {
        let first = self.get(parent).and_then(|node| node.first_child);
        let first = self.unlink(List::Siblings, first, child);
        if let Some(node) = self.get_mut(parent) {
            node.first_child = first;
        }
    }

    /// The tier in which a walk from the root finds the block with this worker.
    pub(crate) fn published(&self, id: NodeId, seat: SeatId) -> Option<Tier> {
        self.get(id)?.holders.get(seat)?.published
    }

    /// Whether `content`, hashed under the block's namespace, is what this block is made of.
    pub(crate) fn is(&self, id: NodeId, content: impl FnOnce(Namespace) -> LocalHash) -> bool {
        let Some(node) = self.get(id) else { return false };
        let above = node.parent.and_then(|parent| self.get(parent)).map(|parent| parent.hash);
        SequenceHash::after(above, content(node.namespace)) == node.hash
    }

    /// The blocks below this one.
    pub(crate) fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.list(List::Siblings, self.get(id).and_then(|node| node.first_child))
    }

    /// The blocks of a list.
    pub(crate) fn list(&self, list: List, first: Option<NodeId>) -> impl Iterator<Item = NodeId> {
        std::iter::successors(first, move |id| self.get(*id)?.links(list).next)
    }

    /// Puts a node that is in no such list before the first of one. Returns the new first.
    pub(crate) fn push_front(&mut self, list: List, first: Option<NodeId>, id: NodeId) -> Option<NodeId> {
        if let Some(node) = self.get_mut(id) {
            *node.links_mut(list) = Links { previous: None, next: first };
        }
        if let Some(second) = first.and_then(|first| self.get_mut(first)) {
            second.links_mut(list).previous = Some(id);
        }
        Some(id)
    }

    /// Takes a node out of the list it is in. Returns the list's new first.
    pub(crate) fn unlink(&mut self, list: List, first: Option<NodeId>, id: NodeId) -> Option<NodeId> {
        let Some(node) = self.get_mut(id) else { return first };
        let Links { previous, next } = std::mem::take(node.links_mut(list));
        if let Some(next) = next.and_then(|next| self.get_mut(next)) {
            next.links_mut(list).previous = previous;
        }
        match previous.and_then(|previous| self.get_mut(previous)) {
            Some(previous) => {
                previous.links_mut(list).next = next;
                first
            }
            None => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(n: u64) -> LocalHash {
        LocalHash(n)
    }

    #[test]
    fn equal_chains_are_one_and_others_fork() {
        let mut tree = Tree::default();
        let root = tree.root(local(1), Namespace::default()).unwrap();
        let left = tree.child(root, local(2)).unwrap();
        let right = tree.child(root, local(3)).unwrap();
        assert_eq!(tree.root(local(1), Namespace::default()), Some(root));
        assert_eq!(tree.child(root, local(2)), Some(left));
        assert_eq!(tree.children(root).collect::<Vec<_>>(), [right, left]);
        assert_eq!(tree.len(), 3);
    }

    #[test]
    fn pruning_goes_up_to_the_first_block_that_is_needed() {
        let mut tree = Tree::default();
        let root = tree.root(local(1), Namespace::default()).unwrap();
        let kept = tree.child(root, local(2)).unwrap();
        let middle = tree.child(root, local(3)).unwrap();
        let leaf = tree.child(middle, local(4)).unwrap();
        tree.prune(middle);
        assert_eq!(tree.len(), 4, "a block with another below it stays");
        tree.prune(leaf);
        assert_eq!(tree.children(root).collect::<Vec<_>>(), [kept]);
        tree.prune(leaf);
        tree.prune(kept);
        assert_eq!((tree.len(), tree.capacity()), (0, 4));
        tree.root(local(1), Namespace::default());
        assert_eq!(tree.capacity(), 4);
    }

    #[test]
    fn pruning_what_is_gone_does_nothing() {
        let mut tree = Tree::default();
        let ids: Vec<_> = (0..2).map(|n| tree.root(local(n), Namespace::default()).unwrap()).collect();
        ids.iter().for_each(|id| tree.prune(*id));
        let elsewhere = tree.root(local(0), Namespace::default()).unwrap();
        assert_ne!(elsewhere, ids[0]);
        tree.prune(ids[0]);
        assert_eq!(tree.root(local(0), Namespace::default()), Some(elsewhere));
        assert_eq!((tree.len(), tree.capacity()), (1, 2));
    }

    #[test]
    fn a_list_survives_taking_out_any_of_its_nodes() {
        for out in 0..3 {
            let mut tree = Tree::default();
            let ids: Vec<_> = (0..3).map(|n| tree.root(local(n), Namespace::default()).unwrap()).collect();
            let first = ids.iter().rev().fold(None, |first, id| tree.push_front(List::Page, first, *id));
            let first = tree.unlink(List::Page, first, ids[out]);
            let left: Vec<_> = ids.iter().copied().filter(|id| *id != ids[out]).collect();
            assert_eq!(tree.list(List::Page, first).collect::<Vec<_>>(), left);
        }
    }

    #[test]
    fn colliding_hashes_make_no_cycle() {
        let mut tree = Tree::default();
        let root = tree.root(local(1), Namespace::default()).unwrap();
        let child = tree.child(root, local(2)).unwrap();
        let hash = tree.get(child).unwrap().hash;
        // A feeder that tells local hashes can name any block a first one.
        assert_eq!(tree.root(LocalHash(hash.0), Namespace::default()), Some(child));
        assert_eq!(tree.get(child).unwrap().parent, Some(root));
    }
}
