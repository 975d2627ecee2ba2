//! Sticky until saturated: llm-d's rule.
//!
//! Keep to the workers that hold most of the prompt, until the prompt tokens that they have in hand exceed those of the
//! least loaded worker by a bound; then choose by load alone. Among those kept to, and among all others, the one with the
//! fewest tokens to compute wins, this prompt's included.

use super::{Cost, Fleet, Load, Policy, Prompt};
use crate::lookup::Depths;

/// The rule's bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sticky {
    /// The share of the prompt's blocks that a worker must hold to be kept to.
    pub least_share: f64,
    /// How many prompt tokens more than the least loaded worker it may have in hand: its rate of prefill, times how long a
    /// first token may take.
    pub most_surplus_tokens: u64,
}

// === impl Sticky ===

impl Default for Sticky {
    /// llm-d's: four fifths, and 15,928 tokens/s for 18 s.
    fn default() -> Self {
        Self { least_share: 0.8, most_surplus_tokens: 15_928 * 18 }
    }
}

impl Policy for Sticky {
    fn cost(&self, prompt: &Prompt, depths: &Depths, load: &Load, fleet: &Fleet) -> Cost {
        let held = f64::from(depths.any());
        let surplus = load.prefill_tokens.saturating_sub(fleet.least_prefill_tokens);
        let keep = prompt.blocks > 0
            && held >= self.least_share * f64::from(prompt.blocks)
            && surplus <= self.most_surplus_tokens;
        let uncached = prompt.tokens as f64 - held * f64::from(prompt.block_size);
        Cost { first: if keep { 0.0 } else { 1.0 }, then: load.prefill_tokens as f64 + uncached.max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: Prompt = Prompt { blocks: 100, tokens: 1600, block_size: 16 };

    fn cost(held: u32, prefill_tokens: u64) -> (f64, f64) {
        let load = Load { requests: 1, prefill_tokens, blocks: 0 };
        let fleet = Fleet { least_prefill_tokens: 1000 };
        let cost = Sticky::default().cost(&PROMPT, &Depths::all_gpu(held), &load, &fleet);
        (cost.first, cost.then)
    }

    #[test]
    fn a_worker_that_holds_most_of_the_prompt_is_kept_to_until_it_is_saturated() {
        let bound = 1000 + 15_928 * 18;
        assert!(cost(80, bound) < cost(79, 0));
        assert!(cost(80, bound + 1) > cost(0, 1000));
    }

    #[test]
    fn otherwise_the_fewest_tokens_to_compute_win() {
        assert!(cost(50, 1000) < cost(0, 1000));
        assert!(cost(0, 1000) < cost(50, 1900));
    }
}
