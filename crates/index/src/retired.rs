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
