//! Longest prefix, then least load.

use super::{Cost, Fleet, Load, Policy, Prompt};
use crate::lookup::Depths;

/// The worker that holds most of the prompt, in whatever tier; among those, the one with the fewest requests in flight.
///
/// Simple and predictable, but blind to load as long as one worker matches deeper than the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LongestPrefix;

// === impl LongestPrefix ===

impl Policy for LongestPrefix {
    fn cost(&self, _prompt: &Prompt, depths: &Depths, load: &Load, _fleet: &Fleet) -> Cost {
        Cost { first: -f64::from(depths.any()), then: f64::from(load.requests) }
    }
}
