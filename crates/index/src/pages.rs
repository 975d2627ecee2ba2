//! The table of pages: which published blocks stand in each, and when each last changed.

use std::collections::VecDeque;

use hashbrown::HashMap;
use smallvec::SmallVec;
use warmroute_routing::page::PageBits;

use crate::chunk::{BlockId, Chunk, ChunkId, List, Places, places, span};
use crate::tree::Tree;

/// The log may be longer than twice the pages by this much before it is cleaned: so a small table is not cleaned at
/// every change.
const LOG_SLACK: usize = 64;

/// Published blocks that a run may have in its page: four branches that part at its start, or a page of a kilobyte.
const MOST_IN_RUN: u32 = 64;
/// A crowded run with fewer blocks than this comes together again. Well below the most, or a run at the bound would move
/// to and fro.
const FEWEST_IN_CROWD: u32 = 32;

/// Every page, and the order in which they changed.
///
/// Each change of a page gets a version of its own, so a reader can stop after any page and go on from there.
#[derive(Debug)]
pub(crate) struct Pages {
    bits: PageBits,
    pages: Vec<Page>,
    /// The blocks of crowded runs, but for their first, by the pages that they stand in.
    crowds: HashMap<u32, SmallVec<[BlockId; 4]>>,
    /// A page's version at each change, ascending. An entry counts only if it is the page's last.
    log: VecDeque<(u64, u32)>,
    version: u64,
    /// The version when the present step began: a page changes but once in a step.
    step: u64,
    /// How many blocks are published.
    blocks: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// 0 if it was never written in this generation.
    version: u64,
    /// The first of the runs whose page it is, by the chunks with their first blocks.
    first: Option<ChunkId>,
}

// === impl Pages ===

impl Pages {
    pub(crate) fn new(bits: PageBits, version: u64) -> Self {
        let pages = vec![Page::default(); bits.page_count() as usize];
        Self { bits, pages, crowds: HashMap::new(), log: VecDeque::new(), version, step: version, blocks: 0 }
    }

    pub(crate) fn bits(&self) -> PageBits {
        self.bits
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// How many blocks are published.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(crate) fn log_len(&self) -> usize {
        self.log.len()
    }

    /// The memory taken, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Page>()
            + self.log.capacity() * size_of::<(u64, u32)>()
            + self.crowds.allocation_size()
    }

    /// A version for a change outside of the pages.
    pub(crate) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Begins a step. Nobody reads a page before it ends.
    pub(crate) fn begin_step(&mut self) {
        self.step = self.version;
    }

    /// When a page last changed.
    pub(crate) fn page_version(&self, number: u32) -> u64 {
        self.page(number).version
    }

    fn page(&self, number: u32) -> Page {
        self.pages.get(number as usize).copied().unwrap_or_default()
    }

    /// The runs whose page it is, by the chunks with their first blocks, in no order.
    pub(crate) fn runs<'a>(&self, number: u32, tree: &'a Tree) -> impl Iterator<Item = ChunkId> + use<'a> {
        tree.list(List::Page, self.page(number).first)
    }

    /// The blocks of crowded runs that stand in a page by their own hashes, in no order.
    pub(crate) fn crowd(&self, number: u32) -> &[BlockId] {
        self.crowds.get(&number).map_or(&[], SmallVec::as_slice)
    }

    /// The pages that changed after `position`, in the order of their last changes.
    pub(crate) fn changed_since(&self, position: u64) -> impl Iterator<Item = (u64, u32)> {
        let start = self.log.partition_point(|(version, _)| *version <= position);
        self.log.range(start..).copied().filter(|(version, page)| self.page_version(*page) == *version)
    }

    /// What is published of a chunk has changed in some of its places; so many of its blocks are published now, from the
    /// first on. `is_told`: whether a page of this version tells of the change, so that it is changed itself.
    pub(crate) fn shift(
        &mut self,
        tree: &mut Tree,
        id: ChunkId,
        changed: Places,
        published: u8,
        is_told: impl Fn(u64) -> bool,
    ) {
        let Some(before) = tree.get(id).map(|chunk| chunk.published) else { return };
        // A block's page may be another one once more blocks have come or gone.
        if published <= before {
            self.change(tree, id, changed, &is_told);
        }
        if published != before {
            self.resize(tree, id, before, published);
        }
        if published > before {
            self.change(tree, id, changed, &is_told);
        }
    }

    /// The pages of a chunk's blocks change in this step, where they tell of it.
    fn change(&mut self, tree: &Tree, id: ChunkId, changed: Places, is_told: &impl Fn(u64) -> bool) {
        let head = tree.head(id);
        let Some(run) = tree.get(head) else { return };
        let own = if run.run.crowded { changed } else { 0 };
        // A run's first block stands in the run's page either way.
        let own = if id == head { own & !1 } else { own };
        if own != changed
            && let Some(hash) = run.hash(0)
        {
            self.mark_told(self.bits.page_of(hash), is_told);
        }
        let Some(chunk) = tree.get(id).filter(|_| own != 0) else { return };
        for hash in places(own).filter_map(|place| chunk.hash(place)) {
            self.mark_told(self.bits.page_of(hash), is_told);
        }
    }

    fn mark_told(&mut self, number: u32, is_told: &impl Fn(u64) -> bool) {
        if is_told(self.page_version(number)) {
            self.mark(number);
        }
    }

    /// Another number of a chunk's blocks, from the first on, is published.
    fn resize(&mut self, tree: &mut Tree, id: ChunkId, before: u8, after: u8) {
        let Some(chunk) = tree.get_mut(id) else { return };
        chunk.published = after;
        let first = chunk.first;
        let moved = span(first + before.min(after), first + before.max(after));
        let head = tree.head(id);
        let Some(run) = tree.get_mut(head).map(|chunk| &mut chunk.run) else { return };
        let (was, crowded) = (run.published, run.crowded);
        run.published = (was + u32::from(after)).saturating_sub(before.into());
        let now = run.published;
        self.blocks = (self.blocks + u64::from(after)).saturating_sub(before.into());
        if crowded {
            self.crowd_in_or_out(tree, id, moved, after > before);
        }
        if now > MOST_IN_RUN && !crowded {
            self.spread(tree, head, true);
        }
        if now < FEWEST_IN_CROWD && crowded {
            self.spread(tree, head, false);
        }
        match (was, now) {
            (0, 1..) => self.link(tree, head),
            (1.., 0) => self.unlink(tree, head),
            _ => {}
        }
    }

    /// Lets a run's blocks stand in the pages of their own hashes, or in that of the run again.
    fn spread(&mut self, tree: &mut Tree, head: ChunkId, crowded: bool) {
        let chunks = tree.run(head);
        let set = |tree: &mut Tree, crowded| {
            if let Some(chunk) = tree.get_mut(head) {
                chunk.run.crowded = crowded;
            }
        };
        // In their own pages, the blocks change whether they come or go.
        set(tree, true);
        for id in chunks {
            let published = tree.get(id).map_or(0, Chunk::published_places);
            self.crowd_in_or_out(tree, id, published, crowded);
            self.change(tree, id, published, &|_| true);
        }
        set(tree, crowded);
        if let Some(hash) = tree.get(head).and_then(|chunk| chunk.hash(0)) {
            self.mark(self.bits.page_of(hash));
        }
    }

    /// Puts blocks of a crowded run into the pages of their own hashes, or takes them out.
    fn crowd_in_or_out(&mut self, tree: &Tree, id: ChunkId, blocks: Places, into: bool) {
        let Some(chunk) = tree.get(id) else { return };
        // A run's first block is found through the run itself.
        let blocks = if chunk.is_head() { blocks & !1 } else { blocks };
        for place in places(blocks) {
            let Some(hash) = chunk.hash(place) else { continue };
            let (number, block) = (self.bits.page_of(hash), id.block(place));
            let crowd = self.crowds.entry(number).or_default();
            if into {
                crowd.push(block);
            } else {
                crowd.retain(|other| *other != block);
                // What a page took in its fullest hour is given back.
                if crowd.is_empty() {
                    self.crowds.remove(&number);
                } else if crowd.spilled() && crowd.len() * 8 <= crowd.capacity() * 3 {
                    crowd.shrink_to_fit();
                }
            }
        }
    }

    /// Puts a run with a published block into its page.
    fn link(&mut self, tree: &mut Tree, head: ChunkId) {
        let hash = tree.get(head).and_then(|chunk| chunk.hash(0));
        if let Some(page) = hash.and_then(|hash| self.pages.get_mut(self.bits.page_of(hash) as usize)) {
            page.first = tree.push_front(List::Page, page.first, head);
        }
    }

    fn unlink(&mut self, tree: &mut Tree, head: ChunkId) {
        let hash = tree.get(head).and_then(|chunk| chunk.hash(0));
        if let Some(page) = hash.and_then(|hash| self.pages.get_mut(self.bits.page_of(hash) as usize)) {
            page.first = tree.unlink(List::Page, page.first, head);
        }
    }

    /// The bytes of a page change in this step.
    fn mark(&mut self, number: u32) {
        let Some(page) = self.pages.get_mut(number as usize) else { return };
        if page.version > self.step {
            return;
        }
        self.version += 1;
        page.version = self.version;
        self.log.push_back((self.version, number));
        if self.log.len() > 2 * self.pages.len() + LOG_SLACK {
            let pages = &self.pages;
            self.log.retain(|(version, number)| {
                pages.get(*number as usize).is_some_and(|page| page.version == *version)
            });
        }
    }

    /// Puts a run with published blocks into its pages of a new table.
    pub(crate) fn put(&mut self, tree: &mut Tree, head: ChunkId) {
        let Some(run) = tree.get(head).map(|chunk| chunk.run) else { return };
        self.blocks += u64::from(run.published);
        self.link(tree, head);
        if run.crowded {
            for id in tree.run(head) {
                let published = tree.get(id).map_or(0, Chunk::published_places);
                self.crowd_in_or_out(tree, id, published, true);
            }
        }
    }

    /// Every page with a published block changes in this step.
    pub(crate) fn mark_filled(&mut self) {
        for number in 0..self.bits.page_count() {
            if self.page(number).first.is_some() || self.crowds.contains_key(&number) {
                self.mark(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(bits: u8) -> Pages {
        Pages::new(PageBits::new(bits).unwrap(), 1)
    }

    fn change(pages: &mut Pages, number: u32) {
        pages.begin_step();
        pages.mark(number);
    }

    #[test]
    fn each_changed_page_is_told_once_in_the_order_of_last_changes() {
        let mut pages = pages(2);
        for number in [3, 1, 3, 0, 1] {
            change(&mut pages, number);
        }
        assert_eq!(pages.changed_since(0).collect::<Vec<_>>(), [(4, 3), (5, 0), (6, 1)]);
        assert_eq!(pages.changed_since(4).collect::<Vec<_>>(), [(5, 0), (6, 1)]);
        assert_eq!(pages.changed_since(6).count(), 0);
        assert_eq!(pages.changed_since(u64::MAX).count(), 0);
    }

    #[test]
    fn a_page_changes_once_in_a_step() {
        let mut pages = pages(1);
        pages.begin_step();
        for number in [0, 1, 0, 1] {
            pages.mark(number);
        }
        assert_eq!(pages.changed_since(0).collect::<Vec<_>>(), [(2, 0), (3, 1)]);
    }

    #[test]
    fn the_log_stays_short_and_loses_nothing() {
        let mut pages = pages(4);
        change(&mut pages, 7);
        for n in 0..10_000 {
            change(&mut pages, n % 3);
            assert!(pages.log_len() <= 2 * 16 + LOG_SLACK);
        }
        assert_eq!(pages.changed_since(0).map(|(_, page)| page).collect::<Vec<_>>(), [7, 1, 2, 0]);
    }

    #[test]
    fn a_page_that_is_not_there_is_never_written() {
        let mut pages = pages(1);
        change(&mut pages, 2);
        assert_eq!((pages.version(), pages.page_version(2)), (1, 0));
    }
}
