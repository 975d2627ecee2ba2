//! The `default` policy: the earliest first token, and the more careful with what is not cached the busier the fleet is.
//!
//! In prompt tokens, the least wins:
//!
//! ```text
//! cost     = queue + (1 + thrift) * uncached + scarcity * idle * uncached / prompt
//! queue    = the worker's prompt tokens in flight that are not computed yet
//! uncached = prompt - B * (gpu + cpu_credit * (cpu - gpu) + disk_credit * (disk - cpu))         [depths, in blocks]
//! idle     = the least queue of all candidates
//! ```
//!
//! `queue + uncached` is what a worker has to compute before this request's first token, so over its rate of prefill it
//! is the time until then. It keeps to a warm worker as long as waiting there is quicker than computing the prompt
//! elsewhere, and gives a popular prefix as many copies as it needs. The other two terms are about everybody else:
//!
//! * Work that is done twice is lost to others, even if it is done as soon: `thrift` makes it a little dearer than it is
//!   long. It keeps a burst together that a copy on every worker would answer as soon.
//! * Who computes anew what another has cached comes first himself, but all who come after him wait for that work, and
//!   for what was evicted to make room. How many they are grows with the queue that nobody can avoid, `idle`. So that is
//!   what the uncached share of the prompt is charged with. Where anybody is idle, it is nothing.
//!
//! Both are the same everywhere for a prompt that nobody holds: a cold request goes to the shortest queue, and among equal
//! ones to the worker with the fewest requests in flight.
//!
//! Decodes need no term of their own: where they fill a worker up, prompts wait there, and their tokens are its queue.

use super::{Cost, Fleet, Load, Policy, Prompt, saved_blocks};
use crate::lookup::Depths;

/// The rule's weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FirstToken {
    /// How much more than its time it weighs to compute what another worker has cached, as a share of it. It keeps a burst
    /// together that would be answered as soon from copies on every worker.
    pub thrift: f64,
    /// How many times the least queue of all is charged for a prompt of which nothing is cached.
    pub scarcity: f64,
    /// What of a block's prefill is saved where it is cached in the host's memory.
    pub cpu_credit: f64,
    /// The same on disk.
    pub disk_credit: f64,
}

// === impl FirstToken ===

impl Default for FirstToken {
    /// By experiment, with `cargo xtask bench quality`: from 4 to 16 it matters little which `scarcity` it is; more `thrift`
    /// is better for long chats and worse for agents and hot prefixes. The credits are Dynamo's.
    fn default() -> Self {
        Self { thrift: 0.25, scarcity: 8.0, cpu_credit: 0.75, disk_credit: 0.25 }
    }
}

impl Policy for FirstToken {
    fn cost(&self, prompt: &Prompt, depths: &Depths, load: &Load, fleet: &Fleet) -> Cost {
        let tokens = prompt.tokens as f64;
        let saved =
            saved_blocks(depths, 1.0, self.cpu_credit, self.disk_credit) * f64::from(prompt.block_size);
        let uncached = (tokens - saved).max(0.0);
        let charge = self.scarcity * fleet.least_prefill_tokens as f64 * uncached / tokens.max(1.0);
        Cost {
            first: load.prefill_tokens as f64 + (1.0 + self.thrift) * uncached + charge,
            then: f64::from(load.requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: Prompt = Prompt { blocks: 100, tokens: 1600, block_size: 16 };

    fn cost(gpu: u32, queue: u64, idle: u64) -> f64 {
        let load = Load { requests: 1, prefill_tokens: queue, blocks: 0 };
        let fleet = Fleet { least_prefill_tokens: idle };
        FirstToken::default().cost(&PROMPT, &Depths::all_gpu(gpu), &load, &fleet).first
    }

    #[test]
    fn with_an_idle_worker_a_warm_one_is_worth_a_queue_of_what_it_saves_and_a_quarter() {
        // 80 of 100 blocks are 1,280 tokens.
        assert!(cost(80, 1599, 0) < cost(0, 0, 0));
        assert!(cost(80, 1601, 0) > cost(0, 0, 0));
    }

    #[test]
    fn the_busier_the_fleet_the_longer_a_warm_worker_is_kept_to() {
        // Four fifths of 8 times the queue that nobody can avoid, in addition.
        assert!(cost(80, 100 + 1600 + 639, 100) < cost(0, 100, 100));
        assert!(cost(80, 100 + 1600 + 641, 100) > cost(0, 100, 100));
    }

    #[test]
    fn what_nobody_holds_goes_to_the_shortest_queue_and_then_to_the_fewest_requests() {
        assert!(cost(0, 100, 100) < cost(0, 101, 100));
        let with = |requests| {
            let load = Load { requests, prefill_tokens: 0, blocks: 0 };
            FirstToken::default().cost(&PROMPT, &Depths::default(), &load, &Fleet::default())
        };
        assert!(with(2).key() < with(3).key());
    }

    #[test]
    fn a_slower_tier_saves_less() {
        let cost = |depths| {
            let depths = Depths::new(depths);
            FirstToken::default().cost(&PROMPT, &depths, &Load::default(), &Fleet::default()).first
        };
        assert_eq!(cost([40, 40, 40, 40]), 1200.0);
        assert_eq!(cost([0, 40, 40, 40]), 1400.0);
        assert_eq!(cost([0, 0, 40, 40]), 1800.0);
        assert_eq!(cost([0, 0, 0, 40]), 2000.0);
    }
}
