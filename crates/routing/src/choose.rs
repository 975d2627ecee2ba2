//! The choice of a worker: what a [`Policy`] costs each candidate at, and the search for the cheapest.
//!
//! The search reads no page that cannot change who wins. A worker's cost is bounded from above by what it is known to
//! hold and from below by what it may hold; as soon as nobody's lower bound beats the best upper bound, the rest of the
//! lookup is left out (branch and bound).

use std::cmp::Ordering;

use crate::hash::SequenceHash;
use crate::lookup::{Depths, Extent, Floor, IndexShape, Lookup, Match, PageStore, Progress, Refine, Scope};
use crate::page::Slot;
use crate::tier::Tier;

mod first_token;
mod least_load;
mod longest_prefix;
mod rule;
mod sticky;
mod weighed;

pub use first_token::FirstToken;
pub use least_load::LeastLoad;
pub use longest_prefix::LongestPrefix;
pub use rule::Rule;
pub use sticky::Sticky;
pub use weighed::Weighed;

/// What a request is about to ask of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Full blocks.
    pub blocks: u32,
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
    /// Blocks of the prompts of requests in flight, cached or not.
    pub blocks: u64,
}

/// What the candidates have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// The least [`Load::prefill_tokens`] of all candidates.
    pub least_prefill_tokens: u64,
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
    /// The cost of sending `prompt` to a worker of the `fleet` that holds `depths` of it and has `load` in hand.
    fn cost(&self, prompt: &Prompt, depths: &Depths, load: &Load, fleet: &Fleet) -> Cost;
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
    /// Whether anybody holds anything of the prompt, or is taken to.
    pub matched: bool,
    /// Pages that were read.
    pub reads: u32,
    /// Whether the cap on reads ended the search.
    pub capped: bool,
}

/// A selection in progress, for a prompt that may still arrive.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    lookup: Lookup,
    /// Workers whose holdings do not count.
    ignored: Vec<Slot>,
}

/// What a selection is about.
pub struct Question<'a, P> {
    /// The prompt; while it arrives, what is expected of it.
    pub prompt: Prompt,
    /// The workers that it may go to, ascending by slot.
    pub candidates: &'a [Candidate],
    /// The rule.
    pub policy: &'a P,
    /// How far the selection goes.
    pub limits: Limits,
    /// A number that should differ from one request to the next: among equals the choice is spread by it.
    pub tie: u64,
}

/// Selects the cheapest worker for a prompt that is there. No candidates: no choices.
pub fn select<S: PageStore, P: Policy>(
    store: &mut S,
    shape: IndexShape,
    hashes: &[SequenceHash],
    question: &Question<'_, P>,
) -> Selection {
    let mut selector = Selector::default();
    selector.advance(store, shape, hashes, true, question);
    selector.selection(question)
}

// === impl Selector ===

impl Selector {
    /// Looks up the blocks that are there. `whole`: they are the whole prompt.
    ///
    /// [`Progress::Done`]: whatever came yet, [`Selector::selection`] would not choose another, if the prompt turns out
    /// as long as expected. So it is at the end of a prompt, and where the cap on reads is reached: each call may cost a
    /// read or more, so call it for a good many new blocks at once.
    pub fn advance<S: PageStore, P: Policy>(
        &mut self,
        store: &mut S,
        shape: IndexShape,
        hashes: &[SequenceHash],
        whole: bool,
        question: &Question<'_, P>,
    ) -> Progress {
        let candidates = question.candidates;
        let ignored = &self.ignored;
        let live = |slot| {
            candidates.binary_search_by_key(&slot, |candidate| candidate.slot).is_ok()
                && !ignored.contains(&slot)
        };
        let scope = Scope { store, shape, live, max_reads: question.limits.max_reads };
        let extent = Extent { hashes, expected_blocks: (!whole).then_some(question.prompt.blocks) };
        self.lookup.advance(scope, extent, &mut Contest::new(question))
    }

    /// Takes as given, from the next [`Selector::advance`] on, what was just sent to these workers.
    pub fn assume(&mut self, floors: &[Floor]) {
        self.lookup.assume(floors);
    }

    /// Takes these workers to hold nothing, from the next [`Selector::advance`] on.
    pub fn ignore(&mut self, workers: impl IntoIterator<Item = Slot>) {
        self.ignored.clear();
        self.ignored.extend(workers);
    }

    /// Whether a worker is known to hold no more than what was found of it, of the blocks that are there.
    pub fn is_exact(&self, slot: Slot) -> bool {
        let mut matches = self.lookup.matches().workers.iter();
        matches.find(|found| found.slot == slot).is_none_or(Match::is_exact)
    }

    /// The best by what is known so far.
    pub fn selection<P: Policy>(&self, question: &Question<'_, P>) -> Selection {
        let found = self.lookup.matches();
        let choices = Contest::new(question).ranking(&found.workers, question.limits.choices, question.tie);
        Selection { choices, matched: !found.workers.is_empty(), reads: found.reads, capped: found.capped }
    }
}

/// The blocks whose prefill is saved, where a block counts by the fastest tier that it is found in. With credits that do not
/// rise from tier to tier, a deeper match never saves less.
fn saved_blocks(depths: &Depths, gpu_credit: f64, cpu_credit: f64, disk_credit: f64) -> f64 {
    let [gpu, cpu, disk] = [Tier::Gpu, Tier::Cpu, Tier::Disk].map(|tier| f64::from(depths.within(tier)));
    gpu_credit * gpu + cpu_credit * (cpu - gpu) + disk_credit * (disk - cpu)
}

/// The candidates, and what their costs are bounded by.
struct Contest<'a, P> {
    question: &'a Question<'a, P>,
    fleet: Fleet,
    /// The least cost of those without a match: known once the matches are.
    unmatched: Option<Option<Cost>>,
}

// === impl Prompt ===

impl Prompt {
    /// Blocks of the prompt, a last one that is not full included.
    pub fn all_blocks(&self) -> f64 {
        self.tokens.div_ceil(u64::from(self.block_size.max(1))) as f64
    }
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

impl<'a, P: Policy> Contest<'a, P> {
    fn new(question: &'a Question<'a, P>) -> Self {
        let least = question.candidates.iter().map(|candidate| candidate.load.prefill_tokens).min();
        Self { question, fleet: Fleet { least_prefill_tokens: least.unwrap_or(0) }, unmatched: None }
    }

    fn cost(&self, depths: &Depths, load: &Load) -> Cost {
        self.question.policy.cost(&self.question.prompt, depths, load, &self.fleet)
    }

    /// The candidates with what was found of them. Both lists ascend by slot.
    fn with_matches<'m>(
        &'m self,
        matches: &'m [Match],
    ) -> impl Iterator<Item = (&'m Candidate, Option<(usize, &'m Match)>)> {
        let mut matches = matches.iter().enumerate().peekable();
        self.question.candidates.iter().map(move |candidate| {
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
        let first = tie.checked_rem(self.question.candidates.len() as u64).unwrap_or(0) as usize;
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
