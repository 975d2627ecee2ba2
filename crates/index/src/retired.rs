//! What ended incarnations of workers held, waiting to be purged.

use std::collections::VecDeque;

use hashbrown::hash_map::IntoValues;

use crate::orphans::Orphans;
use crate::residency::Residency;
use crate::seats::SeatId;
use crate::worker::{BlockName, Ledger, Named};

/// Ended incarnations, oldest first. Their slots are dead already; what is left of them takes memory and room in pages.
#[derive(Debug, Default)]
pub(crate) struct Retired(VecDeque<Remains>);

/// What is left of one.
#[derive(Debug)]
struct Remains {
    seat: SeatId,
    names: IntoValues<BlockName, Named>,
    orphans: Orphans,
}

// === impl Retired ===

impl Retired {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes what a seat's worker has told, whatever the amount of it at once. The seat must be retired.
    pub(crate) fn push(&mut self, seat: SeatId, ledger: Ledger, residency: &mut Residency) {
        if ledger.is_empty() {
            residency.seats.close(seat);
        } else {
            self.0.push_back(Remains { seat, names: ledger.names.into_values(), orphans: ledger.orphans });
        }
    }

    /// Purges up to `max` names and orphans; returns how many.
    pub(crate) fn purge(&mut self, max: usize, residency: &mut Residency) -> usize {
        let mut purged = 0;
        while purged < max
            && let Some(remains) = self.0.front_mut()
        {
            purged += usize::from(remains.purge_one(residency));
            if remains.is_empty() {
                residency.seats.close(remains.seat);
                self.0.pop_front();
            }
        }
        purged
    }
}

// === impl Remains ===

impl Remains {
    fn purge_one(&mut self, residency: &mut Residency) -> bool {
        match self.names.next() {
            // If the block had two names, the second finds nothing of this seat in its place: neither in the block
            // nor, if that was pruned, in another one, for a retired seat gets no new blocks.
            Some(named) => {
                residency.purge(named.node, self.seat);
                true
            }
            None => self.orphans.drop_oldest(),
        }
    }

    fn is_empty(&self) -> bool {
        self.names.len() == 0 && self.orphans.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use warmroute_routing::Tier;
    use warmroute_routing::hash::{LocalHash, Namespace};
    use warmroute_routing::page::PageBits;

    use super::*;
    use crate::copies::Copies;
    use crate::event::{EngineHash, Group};
    use crate::pages::Pages;

    fn residency() -> Residency {
        Residency::new(Pages::new(PageBits::new(0).unwrap(), 1))
    }

    #[test]
    fn an_empty_seat_is_free_at_once_and_another_when_it_is_purged() {
        let (mut residency, mut retired) = (residency(), Retired::default());
        let empty = residency.seats.open();
        retired.push(empty, Ledger::default(), &mut residency);
        let seat = residency.seats.open();
        assert_eq!(seat, empty);

        let mut ledger = Ledger::default();
        let node = residency.tree.root(LocalHash(1), Namespace::default()).unwrap();
        residency.hold(node, seat, Tier::Gpu);
        let name = BlockName { group: Group(0), hash: EngineHash(1) };
        ledger.names.insert(name, Named { node, copies: Copies::one(Tier::Gpu) });
        retired.push(seat, ledger, &mut residency);
        assert_ne!(residency.seats.open(), seat);
        assert_eq!((retired.purge(9, &mut residency), retired.len(), residency.tree.len()), (1, 0, 0));
        assert_eq!(residency.seats.open(), seat);
    }

    #[test]
    fn a_block_with_two_names_is_purged_once() {
        let (mut residency, mut retired) = (residency(), Retired::default());
        let (old, other) = (residency.seats.open(), residency.seats.open());
        let mut ledger = Ledger::default();
        let node = residency.tree.root(LocalHash(1), Namespace::default()).unwrap();
        for group in 0..2 {
            residency.hold(node, old, Tier::Gpu);
            let name = BlockName { group: Group(group), hash: EngineHash(1) };
            ledger.names.insert(name, Named { node, copies: Copies::one(Tier::Gpu) });
        }
        retired.push(old, ledger, &mut residency);
        assert_eq!(retired.purge(1, &mut residency), 1);
        let reused = residency.tree.root(LocalHash(2), Namespace::default()).unwrap();
        assert_eq!(reused, node);
        residency.hold(reused, other, Tier::Gpu);
        assert_eq!(retired.purge(1, &mut residency), 1);
        assert_eq!(residency.tree.published(reused, other), Some(Tier::Gpu));
    }
}
