//! warmroute's policies, asked as the filter asks them.

use warmroute_routing::choose::Rule;

use super::{Arrival, Choice, Router};
use crate::dice::Dice;
use crate::gateway::Gateway;

/// A policy. Recent routes are on, so it decides about what nobody holds, too.
#[derive(Debug)]
pub(super) struct Ours {
    rule: Rule,
    dice: Dice,
}

// === impl Ours ===

impl Ours {
    pub(super) fn new(rule: Rule, seed: u64) -> Self {
        Self { rule, dice: Dice::new(seed) }
    }
}

impl Router for Ours {
    fn route(&mut self, arrival: &Arrival<'_>, gateway: &mut Gateway) -> Choice {
        let selection = gateway.select(arrival.request, &self.rule, arrival.now, self.dice.next());
        let best = selection.choices.first();
        best.map_or(Choice::default(), |best| Choice {
            worker: usize::from(best.slot.number()),
            cached_blocks: best.depths.any(),
        })
    }
}
