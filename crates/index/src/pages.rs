//! The table of pages: which published blocks stand in each, and when each last changed.

use std::collections::VecDeque;

use warmroute_routing::page::PageBits;

use crate::tree::{List, NodeId, Tree};

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
    /// The first of the published blocks that stand in it.
    first: Option<NodeId>,
}

// === impl Pages ===

impl Pages {
    pub(crate) fn new(bits: PageBits, version: u64) -> Self {
        let pages = vec![Page::default(); bits.page_count() as usize];
        Self { bits, pages, log: VecDeque::new(), version, step: version, blocks: 0 }
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
        self.pages.capacity() * size_of::<Page>() + self.log.capacity() * size_of::<(u64, u32)>()
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

    /// A page's published blocks, in no order.
    pub(crate) fn nodes<'a>(&self, number: u32, tree: &'a Tree) -> impl Iterator<Item = NodeId> + use<'a> {
        tree.list(List::Page, self.page(number).first)
    }

    /// The pages that changed after `position`, in the order of their last changes.
    pub(crate) fn changed_since(&self, position: u64) -> impl Iterator<Item = (u64, u32)> {
        let start = self.log.partition_point(|(version, _)| *version <= position);
        self.log.range(start..).copied().filter(|(version, page)| self.page_version(*page) == *version)
    }

    /// The page in which a block stands, or would stand.
    pub(crate) fn of(&self, tree: &Tree, id: NodeId) -> Option<u32> {
        let head = tree.get(tree.head(id))?;
        let of = if head.run.crowded { tree.get(id)? } else { head };
        Some(self.bits.page_of(of.hash))
    }

    /// A block is published that was not.
    pub(crate) fn insert(&mut self, tree: &mut Tree, id: NodeId) {
        self.link(tree, id);
        self.blocks += 1;
        let head = tree.head(id);
        let Some(run) = tree.get_mut(head).map(|node| &mut node.run) else { return };
        run.published += 1;
        if run.published > MOST_IN_RUN && !run.crowded {
            self.spread(tree, head, true);
        }
    }

    /// A block is no longer published.
    pub(crate) fn remove(&mut self, tree: &mut Tree, id: NodeId) {
        self.unlink(tree, id);
        self.blocks -= 1;
        let head = tree.head(id);
        let Some(run) = tree.get_mut(head).map(|node| &mut node.run) else { return };
        run.published = run.published.saturating_sub(1);
        if run.published < FEWEST_IN_CROWD && run.crowded {
            self.spread(tree, head, false);
        }
    }

    /// Lets a run's blocks stand in the pages of their own hashes, or in that of the run again.
    fn spread(&mut self, tree: &mut Tree, head: NodeId, crowded: bool) {
        let mut moved = tree.rest_of_run(head);
        moved.retain(|id| tree.get(*id).is_some_and(|node| node.holders.is_published()));
        for id in &moved {
            self.change(tree, *id);
            self.unlink(tree, *id);
        }
        if let Some(node) = tree.get_mut(head) {
            node.run.crowded = crowded;
        }
        for id in moved {
            self.link(tree, id);
            self.change(tree, id);
        }
        self.change(tree, head);
    }

    /// Puts a published block into its page.
    fn link(&mut self, tree: &mut Tree, id: NodeId) {
        let number = self.of(tree, id);
        if let Some(page) = number.and_then(|number| self.pages.get_mut(number as usize)) {
            page.first = tree.push_front(List::Page, page.first, id);
        }
    }

    fn unlink(&mut self, tree: &mut Tree, id: NodeId) {
        let number = self.of(tree, id);
        if let Some(page) = number.and_then(|number| self.pages.get_mut(number as usize)) {
            page.first = tree.unlink(List::Page, page.first, id);
        }
    }

    /// The page of a block changes in this step.
    pub(crate) fn change(&mut self, tree: &Tree, id: NodeId) {
        if let Some(number) = self.of(tree, id) {
            self.mark(number);
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

    /// Puts a block that was published before into its page of a new table.
    pub(crate) fn put(&mut self, tree: &mut Tree, id: NodeId) {
        self.link(tree, id);
        self.blocks += 1;
    }

    /// Every page with a published block changes in this step.
    pub(crate) fn mark_filled(&mut self) {
        for number in 0..self.bits.page_count() {
            if self.page(number).first.is_some() {
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
