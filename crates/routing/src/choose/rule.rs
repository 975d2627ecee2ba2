//! The policies by name.

use super::{Cost, FirstToken, Fleet, LeastLoad, Load, LongestPrefix, Policy, Prompt, Sticky, Weighed};
use crate::lookup::Depths;

/// One of the policies, as a configuration names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// `default`
    FirstToken(FirstToken),
    /// `prefix`
    Prefix(LongestPrefix),
    /// `cost`
    Cost(Weighed),
    /// `sticky`
    Sticky(Sticky),
    /// `least_load`
    LeastLoad(LeastLoad),
}

// === impl Rule ===

impl Default for Rule {
    fn default() -> Self {
        Self::FirstToken(FirstToken::default())
    }
}

impl Policy for Rule {
    fn cost(&self, prompt: &Prompt, depths: &Depths, load: &Load, fleet: &Fleet) -> Cost {
        match self {
            Self::FirstToken(policy) => policy.cost(prompt, depths, load, fleet),
            Self::Prefix(policy) => policy.cost(prompt, depths, load, fleet),
            Self::Cost(policy) => policy.cost(prompt, depths, load, fleet),
            Self::Sticky(policy) => policy.cost(prompt, depths, load, fleet),
            Self::LeastLoad(policy) => policy.cost(prompt, depths, load, fleet),
        }
    }
}
