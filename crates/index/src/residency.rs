//! Who holds what, and what of it is published.
//!
//! A block is published for a worker if the worker holds it and everything before it; the tier published is the slowest
//! on the way from the root, taking the fastest copy of each block:
//!
//! ```text
//! published(w, root block) = fastest tier in which w holds it
//! published(w, block)      = max(published(w, parent), fastest tier in which w holds it), none if either is none
//! ```
//!
//! So of each chunk a worker's published blocks are its first ones, and how many, in each tier, follows from the tier in
//! which a walk comes to the chunk and from the places that the worker holds in it. Each change is carried down from the
//! chunk where it happened as far as anything changes.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use warmroute_routing::Tier;

use crate::chunk::{BlockId, ChunkId, Places, places, span};
use crate::pages::Pages;
use crate::seats::{SeatId, Seats};
use crate::tree::Tree;

/// The tree, the seats and the pages, kept in step.
#[derive(Debug)]
pub(crate) struct Residency {
    pub(crate) tree: Tree,
    pub(crate) seats: Seats,
    pub(crate) pages: Pages,
    /// How many names a worker has for a block in a tier beside the first: engines name it anew in each group. How many
    /// copies a name stands for is the name's affair.
    further_names: HashMap<(BlockId, SeatId, Tier), u32>,
    /// The chunks that a change has still to reach; empty between changes, kept for its memory.
    stack: Vec<ChunkId>,
    /// The blocks of the store that is being applied, kept for its memory.
    pub(crate) chain: Vec<BlockId>,
}

/// Some blocks of one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    pub(crate) chunk: ChunkId,
    pub(crate) places: Places,
}

// === impl Blocks ===

impl Blocks {
    pub(crate) fn one(block: BlockId) -> Self {
        Self { chunk: block.chunk(), places: block.bit() }
    }
}

// === impl Residency ===

impl Residency {
    pub(crate) fn new(pages: Pages) -> Self {
        Self {
            tree: Tree::default(),
            seats: Seats::default(),
            pages,
            further_names: HashMap::new(),
            stack: Vec::new(),
            chain: Vec::new(),
        }
    }

    /// The worker has a further name with a copy in this tier for each of the blocks.
    pub(crate) fn hold(&mut self, blocks: Blocks, seat: SeatId, tier: Tier) {
        let Some(chunk) = self.tree.get_mut(blocks.chunk) else { return };
        let Some(holding) = chunk.holders.get_or_add(seat) else { return };
        let (before, held) = (holding.any(), holding.held(tier));
        holding.set_held(tier, held | blocks.places);
        let added = (holding.any() & !before).count_ones();
        for place in places(blocks.places & held) {
            *self.further_names.entry((blocks.chunk.block(place), seat, tier)).or_default() += 1;
        }
        if let Some(seat) = self.seats.get_mut(seat) {
            seat.unpublished += u64::from(added);
        }
        if blocks.places & !held != 0 {
            self.settle(blocks.chunk, seat);
        }
    }

    /// The worker has one name less with a copy in this tier for each of the blocks.
    pub(crate) fn release(&mut self, blocks: Blocks, seat: SeatId, tier: Tier) {
        let id = blocks.chunk;
        let Some(holding) = self.tree.get_mut(id).and_then(|chunk| chunk.holders.get_mut(seat)) else {
            return;
        };
        let held = holding.held(tier);
        let mut released = blocks.places & held;
        if !self.further_names.is_empty() {
            for place in places(released) {
                if drop_one(&mut self.further_names, (id.block(place), seat, tier)) {
                    released &= !id.block(place).bit();
                }
            }
        }
        if released == 0 {
            return;
        }
        let before = holding.any();
        holding.set_held(tier, held & !released);
        let after = holding.any();
        self.settle(id, seat);
        if before == after {
            return;
        }
        if let Some(seat) = self.seats.get_mut(seat) {
            seat.unpublished = seat.unpublished.saturating_sub((before & !after).count_ones().into());
        }
        if after == 0
            && let Some(chunk) = self.tree.get_mut(id)
        {
            chunk.holders.remove(seat);
        }
        self.tree.prune(id);
    }

    /// Drops all that a retired seat holds of a chunk, whatever it is. Nothing is carried down: the whole seat goes.
    pub(crate) fn purge(&mut self, id: ChunkId, seat: SeatId) {
        let Some(chunk) = self.tree.get_mut(id) else { return };
        let Some(holding) = chunk.holders.remove(seat) else { return };
        let (first, before) = (chunk.first, chunk.published);
        let reach = holding.reach.any();
        let published = if reach == before { chunk.holders.published() } else { before };
        if !self.further_names.is_empty() {
            for (place, tier) in places(holding.any()).flat_map(|place| Tier::ALL.map(|tier| (place, tier))) {
                self.further_names.remove(&(id.block(place), seat, tier));
            }
        }
        let retired = self.seats.get(seat).copied().unwrap_or_default();
        self.pages.shift(&mut self.tree, id, span(first, first + reach), published, |version| {
            retired.may_be_in_page(version)
        });
        if let Some(seat) = self.seats.get_mut(seat) {
            let held = u64::from(holding.any().count_ones());
            seat.published = seat.published.saturating_sub(reach.into());
            seat.unpublished = seat.unpublished.saturating_sub(held.saturating_sub(reach.into()));
        }
        self.tree.prune(id);
    }

    /// Publishes a chunk's blocks and those below as they should be, after the worker's copies in it have changed.
    fn settle(&mut self, id: ChunkId, seat: SeatId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let changed = self.settle_one(id, seat).unwrap_or(0);
            for place in places(changed) {
                let children = self.tree.children(id.block(place));
                self.stack.extend(children.filter(|id| self.tree.holds(*id, seat)));
            }
            next = self.stack.pop();
        }
    }

    /// Publishes one chunk's blocks as they should be. Returns the places below which something may change with it; none if
    /// the worker holds nothing here.
    fn settle_one(&mut self, id: ChunkId, seat: SeatId) -> Option<Places> {
        let parent = self.tree.get(id)?.parent;
        let above = parent.map_or(Some(Tier::Gpu), |parent| self.tree.published(parent, seat));
        let chunk = self.tree.get_mut(id)?;
        let (first, most) = (chunk.first, chunk.published);
        let holding = chunk.holders.get_mut(seat)?;
        let (before, after) = (holding.reach, holding.reach_below(first, above));
        if before == after {
            return Some(0);
        }
        holding.reach = after;
        let published = match after.any() {
            most_now if most_now >= most => most_now,
            _ if before.any() == most => chunk.holders.published(),
            _ => most,
        };
        let changed = after.changed(before) << first;
        self.pages.shift(&mut self.tree, id, changed, published, |_| true);
        let seat = self.seats.get_mut(seat)?;
        let (more, less) = (u64::from(after.any()), u64::from(before.any()));
        seat.published = (seat.published + more).saturating_sub(less);
        seat.unpublished = (seat.unpublished + less).saturating_sub(more);
        // What the worker holds below a block that was not published cannot have been published either.
        let none_below = if seat.unpublished == 0 { !span(first, first + before.any()) } else { 0 };
        Some(changed & !none_below)
    }

    /// Puts every published block into a new table of pages, all of them changed.
    pub(crate) fn repage(&mut self, pages: Pages) {
        self.pages = pages;
        self.pages.begin_step();
        let runs: Vec<_> = self.tree.published_runs().collect();
        for head in runs {
            self.pages.put(&mut self.tree, head);
        }
        self.pages.mark_filled();
    }
}

/// Takes one from a count that is not there where it is 0. False if it is not there.
fn drop_one<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: K) -> bool {
    let Entry::Occupied(mut count) = counts.entry(key) else { return false };
    *count.get_mut() -= 1;
    if *count.get() == 0 {
        count.remove();
    }
    true
}
