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
//! Each change is carried down from the block where it happened as far as anything changes.

use warmroute_routing::Tier;

use crate::holders::Shift;
use crate::pages::Pages;
use crate::seats::{SeatId, Seats};
use crate::tree::{NodeId, Tree};

/// The tree, the seats and the pages, kept in step.
#[derive(Debug)]
pub(crate) struct Residency {
    pub(crate) tree: Tree,
    pub(crate) seats: Seats,
    pub(crate) pages: Pages,
    /// The blocks that a change has still to reach; empty between changes, kept for its memory.
    stack: Vec<NodeId>,
}

// === impl Residency ===

impl Residency {
    pub(crate) fn new(pages: Pages) -> Self {
        Self { tree: Tree::default(), seats: Seats::default(), pages, stack: Vec::new() }
    }

    /// Whether one more name of the worker for this block can be counted.
    pub(crate) fn can_hold(&self, id: NodeId, seat: SeatId, tier: Tier) -> bool {
        let holding = self.tree.get(id).and_then(|node| node.holders.get(seat));
        holding.is_none_or(|holding| !holding.is_full(tier))
    }

    /// The worker has a further name with a copy of the block in this tier.
    pub(crate) fn hold(&mut self, id: NodeId, seat: SeatId, tier: Tier) {
        let Some(node) = self.tree.get_mut(id) else { return };
        if node.holders.insert(seat)
            && let Some(seat) = self.seats.get_mut(seat)
        {
            seat.unpublished += 1;
        }
        if node.holders.get_mut(seat).is_some_and(|holding| holding.add_name(tier)) {
            self.settle(id, seat);
        }
    }

    /// The worker has one name less with a copy of the block in this tier.
    pub(crate) fn release(&mut self, id: NodeId, seat: SeatId, tier: Tier) {
        let holding = self.tree.get_mut(id).and_then(|node| node.holders.get_mut(seat));
        let Some(holding) = holding else { return };
        if !holding.drop_name(tier) {
            return;
        }
        let gone = !holding.has_names();
        self.settle(id, seat);
        if gone {
            self.forget(id, seat);
        }
    }

    /// Drops what a retired seat holds of a block, whatever it is. Nothing is carried down: the whole seat goes.
    pub(crate) fn purge(&mut self, id: NodeId, seat: SeatId) {
        let Some(node) = self.tree.get_mut(id) else { return };
        if let Some(shift) = node.holders.publish(seat, None) {
            self.count(seat, false);
            let version = self.pages.of(&self.tree, id).map_or(0, |page| self.pages.page_version(page));
            let is_told = self.seats.get(seat).is_some_and(|seat| seat.may_be_in_page(version));
            self.shift(id, shift, is_told);
        }
        self.forget(id, seat);
    }

    /// Drops a holding that is not published.
    fn forget(&mut self, id: NodeId, seat: SeatId) {
        let Some(node) = self.tree.get_mut(id) else { return };
        if node.holders.get(seat).is_none() {
            return;
        }
        node.holders.remove(seat);
        if let Some(seat) = self.seats.get_mut(seat) {
            seat.unpublished = seat.unpublished.saturating_sub(1);
        }
        self.tree.prune(id);
    }

    /// Publishes a block and those below it as they should be, after the worker's copies of it have changed.
    fn settle(&mut self, id: NodeId, seat: SeatId) {
        self.stack.push(id);
        while let Some(id) = self.stack.pop() {
            let Some((before, after)) = self.settle_one(id, seat) else { continue };
            // What the worker holds below a block that was not published cannot have been published either.
            let none_below =
                before.is_none() && self.seats.get(seat).is_none_or(|seat| seat.unpublished == 0);
            if before != after && !none_below {
                self.stack.extend(self.tree.children(id));
            }
        }
    }

    /// Publishes one block as it should be. Returns what it was published as and what it is now; none if the worker
    /// does not hold it.
    fn settle_one(&mut self, id: NodeId, seat: SeatId) -> Option<(Option<Tier>, Option<Tier>)> {
        let node = self.tree.get(id)?;
        let holding = node.holders.get(seat)?;
        let before = holding.published;
        let above = node.parent.map_or(Some(Tier::Gpu), |parent| self.tree.published(parent, seat));
        let after = above.and_then(|above| holding.tier_below(above));
        if let Some(shift) = self.tree.get_mut(id)?.holders.publish(seat, after) {
            if before.is_some() != after.is_some() {
                self.count(seat, after.is_some());
            }
            self.shift(id, shift, true);
        }
        Some((before, after))
    }

    /// Counts a holding that has been published, or is so no longer.
    fn count(&mut self, seat: SeatId, published: bool) {
        let Some(seat) = self.seats.get_mut(seat) else { return };
        let (more, less) = match published {
            true => (&mut seat.published, &mut seat.unpublished),
            false => (&mut seat.unpublished, &mut seat.published),
        };
        *more += 1;
        *less = less.saturating_sub(1);
    }

    /// Keeps the pages in step with a block. `is_told`: its page tells of the change, so that it is changed itself.
    fn shift(&mut self, id: NodeId, shift: Shift, is_told: bool) {
        // The block's page may be another one once it has come or gone.
        if is_told && shift != Shift::Appeared {
            self.pages.change(&self.tree, id);
        }
        match shift {
            Shift::Appeared => self.pages.insert(&mut self.tree, id),
            Shift::Disappeared => self.pages.remove(&mut self.tree, id),
            Shift::Stayed => {}
        }
        if is_told && shift == Shift::Appeared {
            self.pages.change(&self.tree, id);
        }
    }

    /// Puts every published block into a new table of pages, all of them changed.
    pub(crate) fn repage(&mut self, pages: Pages) {
        self.pages = pages;
        self.pages.begin_step();
        let published = |id: &NodeId| self.tree.get(*id).is_some_and(|node| node.holders.is_published());
        let ids: Vec<_> = self.tree.ids().filter(published).collect();
        for id in ids {
            self.pages.put(&mut self.tree, id);
        }
        self.pages.mark_filled();
    }
}
