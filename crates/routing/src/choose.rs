//! The choice of a worker: what a [`Policy`] costs each candidate at, and the search for the cheapest.
//!
//! The search reads no page that cannot change who wins. A worker's cost is bounded from above by what it is known to
//! hold and from below by what it may hold; as soon as nobody's lower bound beats the best upper bound, the rest of the
//! lookup is left out (branch and bound). Nor does it look at a worker one by one that cannot be among the best, whoever it
//! is: of those that have not been looked at it is known what they hold at most, and that they have no less in hand than
//! the least of all.

use crate::hash::SequenceHash;
use crate::lookup::{Depths, Extent, Floor, IndexShape, Lookup, Match, PageStore, Progress, Scope};
use crate::page::Slot;
use crate::tier::Tier;

mod contest;
mod first_token;
mod least_load;
mod longest_prefix;
mod rule;
mod sticky;
mod weighed;

use self::contest::Contest;
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
/// - More in hand never costs less: for equal prompt and depths, `cost` does not fall when any figure of the load grows. The
///   search relies on it to leave workers out.
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
    let mut contest = Contest::new(question);
    selector.look_up(store, shape, hashes, true, &mut contest);
    selector.chosen(&contest)
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
        self.look_up(store, shape, hashes, whole, &mut Contest::new(question))
    }

    fn look_up<S: PageStore, P: Policy>(
        &mut self,
        store: &mut S,
        shape: IndexShape,
        hashes: &[SequenceHash],
        whole: bool,
        contest: &mut Contest<'_, P>,
    ) -> Progress {
        let question = contest.question;
        let candidates = question.candidates;
        let ignored = &self.ignored;
        let live = |slot| find(candidates, slot).is_some() && !ignored.contains(&slot);
        let scope = Scope { store, shape, live, max_reads: question.limits.max_reads };
        let extent = Extent { hashes, expected_blocks: (!whole).then_some(question.prompt.blocks) };
        self.lookup.advance(scope, extent, contest)
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
        let found = matches.find(|found| found.slot == slot);
        found.map_or(self.lookup.others() == 0, Match::is_exact)
    }

    /// The best by what is known so far.
    pub fn selection<P: Policy>(&self, question: &Question<'_, P>) -> Selection {
        self.chosen(&Contest::new(question))
    }

    fn chosen<P: Policy>(&self, contest: &Contest<'_, P>) -> Selection {
        let found = self.lookup.matches();
        let choices = contest.ranking(&found.workers);
        Selection { choices, matched: !found.workers.is_empty(), reads: found.reads, capped: found.capped }
    }
}

/// See [`Cost::key`].
type CostKey = (i64, i64);

/// A worker among the candidates.
#[inline]
fn find(candidates: &[Candidate], slot: Slot) -> Option<usize> {
    // Where no slot is missing, it is where its number says.
    let guess = usize::from(slot.number());
    match candidates.get(guess) {
        Some(candidate) if candidate.slot == slot => Some(guess),
        _ => candidates.binary_search_by_key(&slot, |candidate| candidate.slot).ok(),
    }
}

/// The blocks whose prefill is saved, where a block counts by the fastest tier that it is found in. With credits that do not
/// rise from tier to tier, a deeper match never saves less.
fn saved_blocks(depths: &Depths, gpu_credit: f64, cpu_credit: f64, disk_credit: f64) -> f64 {
    let [gpu, cpu, disk] = [Tier::Gpu, Tier::Cpu, Tier::Disk].map(|tier| f64::from(depths.within(tier)));
    gpu_credit * gpu + cpu_credit * (cpu - gpu) + disk_credit * (disk - cpu)
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
    /// Numbers that are in the order of the costs, as [`f64::total_cmp`] has it: compared more often than made.
    fn key(&self) -> CostKey {
        let ordered = |cost: f64| {
            let bits = cost.to_bits() as i64;
            bits ^ (((bits >> 63) as u64) >> 1) as i64
        };
        (ordered(self.first), ordered(self.then))
    }
}

#[cfg(test)]
mod tests;
