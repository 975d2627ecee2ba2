//! Least load, whatever is cached.

use super::{Cost, Fleet, Load, Policy, Prompt};
use crate::lookup::Depths;

/// The worker with the fewest requests in flight; among those, the one with the fewest prompt tokens to compute.
///
/// The cache decides nothing: a baseline to compare with, or a pool whose prompts share nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeastLoad;

// === impl LeastLoad ===

impl Policy for LeastLoad {
    fn cost(&self, _prompt: &Prompt, _depths: &Depths, load: &Load, _fleet: &Fleet) -> Cost {
        Cost { first: f64::from(load.requests), then: load.prefill_tokens as f64 }
    }
}
