//! Rules that look at no prompt, as every proxy has them.

use super::{Arrival, Choice, Router};
use crate::dice::Dice;
use crate::gateway::Gateway;

/// One after the other.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    next: usize,
}

/// Anyone.
#[derive(Debug)]
pub(super) struct Random {
    dice: Dice,
}

/// Envoy's: of two workers at random, the one with fewer requests in flight.
#[derive(Debug)]
pub(super) struct LeastRequest {
    dice: Dice,
}

// === impl RoundRobin ===

impl Router for RoundRobin {
    fn route(&mut self, _: &Arrival<'_>, gateway: &mut Gateway) -> Choice {
        let worker = self.next;
        self.next = (self.next + 1).checked_rem(gateway.workers()).unwrap_or(0);
        Choice { worker, cached_blocks: 0 }
    }
}

// === impl Random ===

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed) }
    }
}

impl Router for Random {
    fn route(&mut self, _: &Arrival<'_>, gateway: &mut Gateway) -> Choice {
        Choice { worker: self.dice.below(gateway.workers()), cached_blocks: 0 }
    }
}

// === impl LeastRequest ===

impl LeastRequest {
    pub(super) fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed) }
    }
}

impl Router for LeastRequest {
    fn route(&mut self, _: &Arrival<'_>, gateway: &mut Gateway) -> Choice {
        let pair = [(); 2].map(|()| self.dice.below(gateway.workers()));
        let requests = |worker: &usize| gateway.loads().get(*worker).map(|load| load.requests);
        Choice { worker: pair.into_iter().min_by_key(requests).unwrap_or(0), cached_blocks: 0 }
    }
}
