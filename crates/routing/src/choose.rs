//! The choice of a worker: what a [`Policy`] costs each candidate at, and the search for the cheapest.
//!
//! The search reads no page that cannot change who wins. A worker's cost is bounded from above by what it is known to
//! hold and from below by what it may hold; as soon as nobody's lower bound beats the best upper bound, the rest of the
//! lookup is left out (branch and bound).

use std::cmp::Ordering;

use crate::hash::SequenceHash;
use crate::lookup::{Depths, IndexShape, Match, PageStore, Refine, lookup};
use crate::page::Slot;

mod longest_prefix;

pub use longest_prefix::LongestPrefix;

/// What a request is about to ask of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt<'a> {
    /// The full blocks' hashes.
    pub hashes: &'a [SequenceHash],
    /// All tokens, those of a last block that is not full included.
    pub tokens: u64,
    /// Tokens in a block.
    pub block_size: u32,
}

/// A worker's work in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests in flight.
    pub requests: u32,
    /// Prompt tokens that were not cached and are not computed yet.
    pub prefill_tokens: u64,
}

/// A worker that a request may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The worker.
    pub slot: Slot,
    /// Its work in hand.
    pub load: Load,
}

/// What it costs to send a request to a worker: the smaller, the better. `then` decides between equal `first`s. Not a
/// number counts as dearest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// What counts most.
    pub first: f64,
    /// What decides a tie.
    pub then: f64,
}

/// A rule that weighs what is cached against what is in hand.
///
/// # Contract
///
/// - A deeper match never costs more: for equal prompt and load, `cost` does not rise when any depth grows. The search
///   relies on it to leave pages unread.
/// - Equal arguments give equal costs: no clock, no chance.
/// - It is called for each candidate and each page read, so it does not allocate.
pub trait Policy {
    /// The cost of sending `prompt` to a worker that holds `depths` of it and has `load` in hand.
    fn cost(&self, prompt: &Prompt<'_>, depths: &Depths, load: &Load) -> Cost;
}

/// How far a selection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages that may be read.
    pub max_reads: u32,
    /// Workers that are wanted, best first.
    pub choices: usize,
}

/// A worker that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The worker.
    pub slot: Slot,
    /// What it holds of the prompt at least.
    pub depths: Depths,
    /// What it costs.
    pub cost: Cost,
}

/// The outcome of a selection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The workers, best first; as many as were wanted, if there are. The first costs least for certain (unless the
    /// search was capped); those behind it are ranked by what it learnt of them on the way, for want of a better host
    /// when the first refuses.
    pub choices: Vec<Choice>,
    /// Pages that were read.
    pub reads: u32,
    /// Whether the cap on reads ended the search.
    pub capped: bool,
}

/// Selects the cheapest of `candidates`, which ascend by slot. No candidates: no choices.
///
/// Among equals the choice is spread by `tie`, a number that should differ from one request to the next.
pub fn select<S: PageStore>(
    store: &mut S,
    shape: IndexShape,
    prompt: &Prompt<'_>,
    candidates: &[Candidate],
    policy: &impl Policy,
    limits: Limits,
    tie: u64,
) -> Selection {
    let is_candidate = |slot| candidates.binary_search_by_key(&slot, |candidate| candidate.slot).is_ok();
    let mut contest = Contest { policy, prompt, candidates, unmatched: None };
    let found = lookup(store, shape, prompt.hashes, is_candidate, limits.max_reads, &mut contest);
    let choices = contest.ranking(&found.workers, limits.choices, tie);
    Selection { choices, reads: found.reads, capped: found.capped }
}

/// The candidates, and what their costs are bounded by.
struct Contest<'a, P> {
    policy: &'a P,
    prompt: &'a Prompt<'a>,
    candidates: &'a [Candidate],
    /// The least cost of those without a match: known once the matches are.
    unmatched: Option<Option<Cost>>,
}

// === impl Cost ===

impl Cost {
    fn order(&self, other: &Self) -> Ordering {
        self.first.total_cmp(&other.first).then(self.then.total_cmp(&other.then))
    }

    fn beats(&self, other: &Self) -> bool {
        self.order(other).is_lt()
    }
}

// === impl Contest ===

impl<P: Policy> Contest<'_, P> {
    fn cost(&self, depths: &Depths, load: &Load) -> Cost {
        self.policy.cost(self.prompt, depths, load)
    }

    /// The candidates with what was found of them. Both lists ascend by slot.
    fn with_matches<'m>(
        &'m self,
        matches: &'m [Match],
    ) -> impl Iterator<Item = (&'m Candidate, Option<(usize, &'m Match)>)> {
        let mut matches = matches.iter().enumerate().peekable();
        self.candidates.iter().map(move |candidate| {
            while matches.next_if(|(_, found)| found.slot < candidate.slot).is_some() {}
            (candidate, matches.next_if(|(_, found)| found.slot == candidate.slot))
        })
    }

    fn least_unmatched(&self, matches: &[Match]) -> Option<Cost> {
        self.with_matches(matches)
            .filter(|(_, found)| found.is_none())
            .map(|(candidate, _)| self.cost(&Depths::default(), &candidate.load))
            .min_by(Cost::order)
    }

    fn ranking(&self, matches: &[Match], choices: usize, tie: u64) -> Vec<Choice> {
        let first = tie.checked_rem(self.candidates.len() as u64).unwrap_or(0) as usize;
        let ranked = self.with_matches(matches).map(|(candidate, found)| {
            let depths = found.map_or(Depths::default(), |(_, found)| found.at_least);
            Choice { slot: candidate.slot, depths, cost: self.cost(&depths, &candidate.load) }
        });
        // Starting at another candidate for each request spreads the ties: the first of equals wins.
        let ranked: Vec<_> = ranked.collect();
        let (before, after) = ranked.split_at_checked(first).unwrap_or((&[], &ranked));
        let mut best: Vec<Choice> = Vec::with_capacity(choices + 1);
        for choice in after.iter().chain(before) {
            let place = best.partition_point(|better| !choice.cost.beats(&better.cost));
            if place < choices {
                best.insert(place, *choice);
                best.truncate(choices);
            }
        }
        best
    }
}

impl<P: Policy> Refine for Contest<'_, P> {
    fn next(&mut self, matches: &[Match]) -> Option<usize> {
        let unmatched = match self.unmatched {
            Some(known) => known,
            None => *self.unmatched.insert(self.least_unmatched(matches)),
        };
        // Who is sure to cost least, by what is known of everybody?
        let sure = self
            .with_matches(matches)
            .filter_map(|(candidate, found)| {
                let (i, found) = found?;
                Some((Some(i), self.cost(&found.at_least, &candidate.load)))
            })
            .chain(unmatched.map(|cost| (None, cost)))
            .min_by(|(_, a), (_, b)| a.order(b))?;
        // Who else may still cost less?
        let mut rivals = self.with_matches(matches).filter_map(|(candidate, found)| {
            let (i, found) = found.filter(|(i, found)| Some(*i) != sure.0 && !found.is_exact())?;
            self.cost(&found.at_most, &candidate.load).beats(&sure.1).then_some((i, found))
        });
        let first = rivals.next()?;
        let champion = sure.0.and_then(|i| Some((i, matches.get(i)?)));
        let (i, _) = rivals.chain(champion).fold(first, |a, b| if b.1.doubt() > a.1.doubt() { b } else { a });
        Some(i)
    }
}

#[cfg(test)]
mod tests;
