//! The tree of blocks, shared by all workers, kept in chunks.
//!
//! A *chunk* is a piece of one branch inside one run (`RUN_BLOCKS` blocks from a prompt's start on): blocks that follow one
//! another, each in its place of the run. Where prompts part inside a run, the branch that came first goes on in its chunk
//! and each other one begins a chunk of its own, in the place where it parts. A chunk never moves or splits, so a block's
//! number stays what it is as long as the block is there.
//!
//! ```text
//! place        0 1 2 3 4 5 ... 15     0 1 2 ...
//! chunk A      a b c d e f ... p  --> q r s         the next run: chunk C, below A's last place
//! chunk B              x y z                        parts after c: a fork of A at place 2
//! ```
//!
//! So what is known of a block is its sequence hash alone; all else is known of a chunk.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;
use warmroute_routing::Tier;
use warmroute_routing::hash::{LocalHash, Namespace, SequenceHash};

use crate::chunk::{BlockId, Chunk, ChunkId, Links, List, PLACES, Run};
use crate::holders::Holders;
use crate::seats::SeatId;

/// Chunks that memory is taken for at a time, some 13 KB: a vector that doubles would leave up to half of itself empty.
const SLAB: usize = 64;

/// Blocks by sequence hash, each below the one before it.
///
/// A block is here as long as a worker holds it or another block is below it: so a chain with a hole stays whole.
/// Memory is reused, so it is as large as the most chunks there ever were at a time.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    slabs: Vec<Vec<Chunk>>,
    /// Chunks that memory was ever taken for.
    chunks: usize,
    /// The first chunk that is free; the others are its siblings.
    free: Option<ChunkId>,
    /// Chunks by the hash of their first block.
    by_first: HashTable<ChunkId>,
    hasher: DefaultHashBuilder,
    blocks: usize,
}

// === impl Tree ===

impl Tree {
    pub(crate) fn get(&self, id: ChunkId) -> Option<&Chunk> {
        self.slabs.get(id.index() / SLAB)?.get(id.index() % SLAB)
    }

    pub(crate) fn get_mut(&mut self, id: ChunkId) -> Option<&mut Chunk> {
        self.slabs.get_mut(id.index() / SLAB)?.get_mut(id.index() % SLAB)
    }

    /// The sequence hash of a block.
    pub(crate) fn hash(&self, id: BlockId) -> Option<SequenceHash> {
        self.get(id.chunk())?.hash(id.place())
    }

    /// The block before this one; none for a prompt's first.
    pub(crate) fn parent(&self, id: BlockId) -> Option<BlockId> {
        let chunk = self.get(id.chunk())?;
        if id.place() > usize::from(chunk.first) {
            Some(id.chunk().block(id.place() - 1))
        } else {
            chunk.parent
        }
    }

    /// What a block's tokens were hashed under.
    pub(crate) fn namespace(&self, id: BlockId) -> Option<Namespace> {
        Some(self.get(id.chunk())?.namespace)
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.blocks
    }

    /// How many blocks fit in the memory taken so far.
    pub(crate) fn capacity(&self) -> usize {
        self.chunks * PLACES
    }

    /// The memory taken for blocks, in bytes: lists of more holders than a chunk has room for, and forks, are not counted.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slabs.len() * SLAB * size_of::<Chunk>() + self.by_first.allocation_size()
    }

    /// Every run that has published blocks, by the chunk with its first one.
    pub(crate) fn published_runs(&self) -> impl Iterator<Item = ChunkId> {
        let chunks = self.slabs.iter().flatten().enumerate();
        chunks.filter(|(_, chunk)| chunk.run.published > 0).filter_map(|(index, _)| ChunkId::new(index))
    }

    /// The block `local` as a prompt's first. None if the tree is full, as for [`Tree::child`].
    pub(crate) fn root(&mut self, local: LocalHash, namespace: Namespace) -> Option<BlockId> {
        self.enter(SequenceHash::root(local), namespace, None)
    }

    /// The block after `parent` that is made of what `content` says, hashed under the parent's namespace. The caller must
    /// hold it or prune it.
    pub(crate) fn child(
        &mut self,
        parent: BlockId,
        content: impl FnOnce(Namespace) -> LocalHash,
    ) -> Option<BlockId> {
        let chunk = self.get_mut(parent.chunk())?;
        let namespace = chunk.namespace;
        let hash = chunk.hash(parent.place())?.child(content(namespace));
        self.enter(hash, namespace, Some(parent))
    }

    /// The blocks of a chain after `parent` that are made of what `contents` say, each hashed under the parent's namespace,
    /// are added to `chain`: all, unless the tree is full. The caller must hold them or prune them.
    pub(crate) fn descend<F: FnOnce(Namespace) -> LocalHash>(
        &mut self,
        mut parent: BlockId,
        mut contents: impl Iterator<Item = F>,
        chain: &mut Vec<BlockId>,
    ) {
        loop {
            let (id, mut place) = (parent.chunk(), parent.place());
            let Some(chunk) = self.get_mut(id) else { return };
            let Some(mut hash) = chunk.hash(place) else { return };
            let (namespace, end) = (chunk.namespace, chunk.end);
            let parted = loop {
                let Some(content) = contents.next() else { break false };
                hash = hash.child(content(namespace));
                if chunk.go_on(place + 1, hash).is_none() {
                    break true;
                }
                place += 1;
                chain.push(id.block(place));
            };
            self.blocks += usize::from(chunk.end - end);
            if !parted {
                return;
            }
            let Some(block) = self.branch(hash, namespace, Some(id.block(place))) else { return };
            chain.push(block);
            parent = block;
        }
    }

    /// The block with this hash, below `parent`. The caller must hold it or prune it.
    pub(crate) fn enter(
        &mut self,
        hash: SequenceHash,
        namespace: Namespace,
        parent: Option<BlockId>,
    ) -> Option<BlockId> {
        if let Some(parent) = parent
            && let Some(chunk) = self.get_mut(parent.chunk())
            && let Some(added) = chunk.go_on(parent.place() + 1, hash)
        {
            self.blocks += usize::from(added);
            return Some(parent.chunk().block(parent.place() + 1));
        }
        self.branch(hash, namespace, parent)
    }

    /// A block that does not go on in its parent's chunk, or where others part from the parent.
    fn branch(
        &mut self,
        hash: SequenceHash,
        namespace: Namespace,
        parent: Option<BlockId>,
    ) -> Option<BlockId> {
        let place = parent.map_or(0, |parent| (parent.place() + 1) % PLACES);
        let is_first = |chunk: &Chunk| chunk.parent == parent && chunk.hash(place) == Some(hash);
        let bucket = self.hasher.hash_one(hash.0);
        let found = self.by_first.find(bucket, |id| self.get(*id).is_some_and(is_first));
        if let Some(id) = found {
            return Some(id.block(place));
        }
        let goes_on = parent.map(BlockId::chunk).filter(|_| place > 0);
        // What came first may have gone meanwhile: then its place in the chunk is free again.
        if let Some(id) = goes_on
            && let Some(chunk) = self.get_mut(id)
            && usize::from(chunk.end) == place
        {
            chunk.push(hash);
            self.blocks += 1;
            return Some(id.block(place));
        }
        let mut chunk = Chunk::new(hash, namespace, parent, place as u8);
        chunk.head = goes_on.map(|above| self.head(above));
        let id = self.put(chunk)?;
        self.blocks += 1;
        self.add_first(bucket, id);
        if let Some(parent) = parent {
            let first = self.get(parent.chunk()).and_then(|chunk| chunk.first_child(parent.place()));
            let first = self.push_front(List::Siblings, first, id);
            if let Some(chunk) = self.get_mut(parent.chunk()) {
                chunk.set_first_child(parent.place(), first);
            }
        }
        Some(id.block(place))
    }

    fn add_first(&mut self, bucket: u64, id: ChunkId) {
        let Self { by_first, slabs, hasher, .. } = self;
        by_first.insert_unique(bucket, id, |id| {
            let chunk = slabs.get(id.index() / SLAB).and_then(|slab| slab.get(id.index() % SLAB));
            let hash = chunk.and_then(|chunk| chunk.hash(usize::from(chunk.first)));
            hasher.hash_one(hash.map_or(0, |hash| hash.0))
        });
    }

    /// The chunk with the first block of a chunk's run.
    pub(crate) fn head(&self, id: ChunkId) -> ChunkId {
        self.get(id).and_then(|chunk| chunk.head).unwrap_or(id)
    }

    /// The chunks of a run, the one with its first block first.
    pub(crate) fn run(&self, head: ChunkId) -> SmallVec<[ChunkId; 4]> {
        let mut chunks = SmallVec::from_slice(&[head]);
        let mut next = 0;
        while let Some(id) = chunks.get(next) {
            if let Some(forks) = self.get(*id).and_then(|chunk| chunk.forks.as_ref()) {
                forks.iter().for_each(|first| chunks.extend(self.list(List::Siblings, *first)));
            }
            next += 1;
        }
        chunks
    }

    fn put(&mut self, chunk: Chunk) -> Option<ChunkId> {
        if let Some(id) = self.free {
            let free = self.get_mut(id)?;
            let next = free.siblings.next;
            *free = chunk;
            self.free = next;
            return Some(id);
        }
        let id = ChunkId::new(self.chunks)?;
        if self.slabs.len() * SLAB == self.chunks {
            self.slabs.push(Vec::with_capacity(SLAB));
        }
        self.slabs.last_mut()?.push(chunk);
        self.chunks += 1;
        Some(id)
    }

    /// Forgets the blocks at a chunk's end that nothing needs any more, and then those above it likewise.
    pub(crate) fn prune(&mut self, id: ChunkId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let Some(chunk) = self.get(id) else { return };
            let (end, first) = (chunk.needed_end(), chunk.first);
            if end == chunk.end {
                return;
            }
            if end == first {
                next = self.forget(id);
                continue;
            }
            self.blocks -= usize::from(chunk.end - end);
            if let Some(chunk) = self.get_mut(id) {
                chunk.end = end;
            }
            return;
        }
    }

    /// Frees a chunk that nothing needs. Returns the chunk above it.
    fn forget(&mut self, id: ChunkId) -> Option<ChunkId> {
        let chunk = self.get(id)?;
        let hash = chunk.hash(usize::from(chunk.first))?;
        let (parent, blocks) = (chunk.parent, usize::from(chunk.end - chunk.first));
        if let Ok(entry) = self.by_first.find_entry(self.hasher.hash_one(hash.0), |first| *first == id) {
            entry.remove();
        }
        if let Some(parent) = parent {
            let first = self.get(parent.chunk()).and_then(|chunk| chunk.first_child(parent.place()));
            let first = self.unlink(List::Siblings, first, id);
            if let Some(chunk) = self.get_mut(parent.chunk()) {
                chunk.set_first_child(parent.place(), first);
            }
        }
        self.blocks -= blocks;
        let next = self.free.replace(id);
        let chunk = self.get_mut(id)?;
        (chunk.end, chunk.published, chunk.run) = (chunk.first, 0, Run::default());
        (chunk.holders, chunk.forks) = (Holders::default(), None);
        chunk.siblings = Links { previous: None, next };
        parent.map(BlockId::chunk)
    }

    /// Whether a worker holds a block of a chunk.
    pub(crate) fn holds(&self, id: ChunkId, seat: SeatId) -> bool {
        self.get(id).is_some_and(|chunk| chunk.holders.get(seat).is_some())
    }

    /// The tier in which a walk from the root finds the block with this worker.
    pub(crate) fn published(&self, id: BlockId, seat: SeatId) -> Option<Tier> {
        let chunk = self.get(id.chunk())?;
        chunk.holders.get(seat)?.published_at(chunk.first, id.place())
    }

    /// Whether `content`, hashed under the block's namespace, is what this block is made of.
    pub(crate) fn is(&self, id: BlockId, content: impl FnOnce(Namespace) -> LocalHash) -> bool {
        let Some(namespace) = self.namespace(id) else { return false };
        let above = self.parent(id).and_then(|parent| self.hash(parent));
        Some(SequenceHash::after(above, content(namespace))) == self.hash(id)
    }

    /// The chunks that begin after this block.
    pub(crate) fn children(&self, id: BlockId) -> impl Iterator<Item = ChunkId> {
        let first = self.get(id.chunk()).and_then(|chunk| chunk.first_child(id.place()));
        self.list(List::Siblings, first)
    }

    /// The chunks of a list.
    pub(crate) fn list(&self, list: List, first: Option<ChunkId>) -> impl Iterator<Item = ChunkId> {
        std::iter::successors(first, move |id| self.get(*id)?.links(list).next)
    }

    /// Puts a chunk that is in no such list before the first of one. Returns the new first.
    pub(crate) fn push_front(&mut self, list: List, first: Option<ChunkId>, id: ChunkId) -> Option<ChunkId> {
        if let Some(chunk) = self.get_mut(id) {
            *chunk.links_mut(list) = Links { previous: None, next: first };
        }
        if let Some(second) = first.and_then(|first| self.get_mut(first)) {
            second.links_mut(list).previous = Some(id);
        }
        Some(id)
    }

    /// Takes a chunk out of the list it is in. Returns the list's new first.
    pub(crate) fn unlink(&mut self, list: List, first: Option<ChunkId>, id: ChunkId) -> Option<ChunkId> {
        let Some(chunk) = self.get_mut(id) else { return first };
        let Links { previous, next } = std::mem::take(chunk.links_mut(list));
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
mod tests;
