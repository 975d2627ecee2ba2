//! What ended incarnations of workers held, waiting to be purged.

use std::collections::VecDeque;

use hashbrown::hash_table::IntoIter;

use crate::names::Named;
use crate::orphans::Orphans;
use crate::residency::Residency;
use crate::seats::SeatId;
use crate::worker::Ledger;

/// Ended incarnations, oldest first. Their slots are dead already; what is left of them takes memory and room in pages.
#[derive(Debug, Default)]
pub(crate) struct Retired(VecDeque<Remains>);

/// What is left of one.
#[derive(Debug)]
struct Remains {
    seat: SeatId,
    /// What its names in each group meant.
    names: Vec<IntoIter<Named>>,
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
            let names = ledger.names.into_tables().collect();
            self.0.push_back(Remains { seat, names, orphans: ledger.orphans });
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
        while let Some(names) = self.names.last_mut() {
            if let Some(named) = names.next() {
                // The first name in a chunk takes the seat out of it whole. The others find nothing of it: neither there
                // nor, if the chunk was pruned, in what has come in its place, for a retired seat gets no new blocks.
                residency.purge(named.block.chunk(), self.seat);
                return true;
            }
            self.names.pop();
        }
        self.orphans.drop_oldest()
    }

    fn is_empty(&self) -> bool {
        self.names.iter().all(|names| names.len() == 0) && self.orphans.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use warmroute_routing::Tier;
    use warmroute_routing::hash::{LocalHash, Namespace};
    use warmroute_routing::page::PageBits;

    use super::*;
    use crate::event::{EngineHash, Group};
    use crate::pages::Pages;
    use crate::residency::Blocks;

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
        let block = residency.tree.root(LocalHash(1), Namespace::default()).unwrap();
        residency.hold(Blocks::one(block), seat, Tier::Gpu);
        ledger.names.table(Group(0)).bind(EngineHash(1), block, Tier::Gpu);
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
        let block = residency.tree.root(LocalHash(1), Namespace::default()).unwrap();
        for group in 0..2 {
            residency.hold(Blocks::one(block), old, Tier::Gpu);
            ledger.names.table(Group(group)).bind(EngineHash(1), block, Tier::Gpu);
        }
        retired.push(old, ledger, &mut residency);
        assert_eq!(retired.purge(1, &mut residency), 1);
        let reused = residency.tree.root(LocalHash(2), Namespace::default()).unwrap();
        assert_eq!(reused, block);
        residency.hold(Blocks::one(reused), other, Tier::Gpu);
        assert_eq!(retired.purge(1, &mut residency), 1);
        assert_eq!(residency.tree.published(reused, other), Some(Tier::Gpu));
    }
}
