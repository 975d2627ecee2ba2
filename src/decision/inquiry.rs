//! From a prompt's hashes to a decision.

use std::rc::Rc;

use warmroute_routing::choose::{Candidate, Limits, Prompt, Question, Rule, Selection, Selector};
use warmroute_routing::hash::SequenceHash;
use warmroute_routing::lookup::Progress;

use super::{Decision, Fallback, LookupFigures, Reason, Route};
use crate::failures::Failures;
use crate::host::Host;
use crate::index::{IndexReader, PoolView, Snapshot};
use crate::ledger::Ledger;

/// What a decision is made from.
pub struct Surroundings<'a, H> {
    /// The proxy.
    pub host: &'a H,
    /// The pool's index.
    pub index: &'a mut IndexReader,
    /// What the workers have in hand.
    pub ledger: &'a mut Ledger,
    /// The workers that have just failed.
    pub failures: &'a Failures,
    /// The rule that the pool's workers are chosen by.
    pub rule: &'a Rule,
    /// What it is bounded by.
    pub bounds: Bounds,
    /// The time of day, in microseconds since 1970.
    pub now_us: u64,
}

/// What a decision is bounded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// An index older than this is not used, in microseconds.
    pub max_index_age_us: u64,
    /// Pages read, at most.
    pub max_page_reads: u32,
    /// Endpoints named, at most.
    pub max_destinations: usize,
}

/// A prompt, as far as it is there.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The hashes of its full blocks.
    pub hashes: &'a [SequenceHash],
    /// The block size that they were made with.
    pub block_size: u32,
    /// How many tokens it has; if it is not all there, how many it is expected to have.
    pub tokens: u64,
    /// Whether it is all there.
    pub whole: bool,
    /// Whether no more of it is waited for.
    pub last: bool,
}

/// The search for a decision about one request, whose prompt may still arrive.
#[derive(Debug)]
pub struct Inquiry {
    selector: Selector,
    /// The pool that the selector has looked into.
    view: Option<Rc<PoolView>>,
    tie: u64,
}

// === impl Inquiry ===

impl Inquiry {
    /// Nothing is known yet. `tie` is a number that differs from request to request.
    pub fn new(tie: u64) -> Self {
        Self { selector: Selector::default(), view: None, tie }
    }

    /// Looks up what is there of the prompt. None: more of it could change the decision. The last question is always decided.
    pub fn advance<H: Host>(
        &mut self,
        around: &mut Surroundings<'_, H>,
        asked: &Asked<'_>,
    ) -> Option<Decision> {
        let max_age_us = around.bounds.max_index_age_us;
        let snapshot = match around.index.snapshot(around.host, around.ledger, around.now_us, max_age_us) {
            Ok(snapshot) => snapshot,
            Err(reason) => return Some(Decision::fallback(reason)),
        };
        let view = Rc::clone(&snapshot.view);
        if view.pool.block_size != asked.block_size {
            // The index was made anew, in other blocks, while the body came in.
            return Some(Decision::fallback(Reason::NoIndex));
        }
        if asked.hashes.is_empty() {
            return asked.last.then(|| Decision::fallback(Reason::ShortPrompt));
        }
        let candidates = view.candidates(around.ledger, around.failures, around.now_us);
        if candidates.is_empty() {
            return Some(Decision::fallback(Reason::NoWorkers));
        }
        self.look_into(&view);
        let question = self.question(asked, &candidates, around.rule, around.bounds);
        let mut pages = around.index.pages(around.host, &snapshot);
        let progress = self.selector.advance(&mut pages, view.shape(), asked.hashes, asked.whole, &question);
        if progress == Progress::MoreBlocks && !asked.last {
            return None;
        }
        Some(outcome(&snapshot, &self.selector.selection(&question), &question.prompt, asked.whole))
    }

    /// What was looked up in another generation of the index, or under another worker table, is forgotten.
    fn look_into(&mut self, view: &Rc<PoolView>) {
        let same = self.view.as_ref().is_some_and(|seen| seen.pool.generation == view.pool.generation);
        if !same {
            self.selector = Selector::default();
        }
        self.view = Some(Rc::clone(view));
    }

    fn question<'a>(
        &self,
        asked: &Asked<'_>,
        candidates: &'a [Candidate],
        rule: &'a Rule,
        bounds: Bounds,
    ) -> Question<'a, Rule> {
        let known = asked.hashes.len() as u64;
        let blocks =
            if asked.whole { known } else { known.max(asked.tokens / u64::from(asked.block_size.max(1))) };
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Question {
            prompt: Prompt { blocks, tokens: asked.tokens, block_size: asked.block_size },
            candidates,
            policy: rule,
            limits: Limits { max_reads: bounds.max_page_reads, choices: bounds.max_destinations },
            tie: self.tie,
        }
    }
}

fn outcome(snapshot: &Snapshot, selection: &Selection, prompt: &Prompt, whole: bool) -> Decision {
    let lookup = LookupFigures {
        prompt_blocks: prompt.blocks,
        whole,
        reads: selection.reads,
        index_age_us: snapshot.age_us,
    };
    match route(snapshot, selection, prompt, lookup) {
        Some(route) => Decision::Route(route),
        None => Decision::Fallback(Fallback { reason: Reason::Cold, lookup: Some(lookup) }),
    }
}

/// The workers of a selection; none where nobody holds anything of the prompt.
fn route(
    snapshot: &Snapshot,
    selection: &Selection,
    prompt: &Prompt,
    lookup: LookupFigures,
) -> Option<Route> {
    let pool = &snapshot.view.pool;
    let best = selection.choices.first().filter(|_| selection.matched)?;
    let rank = pool.worker(best.slot)?.rank;
    let mut destinations = Vec::with_capacity(selection.choices.len());
    for choice in &selection.choices {
        let Some(worker) = pool.worker(choice.slot) else { continue };
        // Two ranks of one engine share an address, and whoever is asked instead must have the rank that is named.
        if !destinations.contains(&worker.address) && pool.has_rank(worker.address, rank) {
            destinations.push(worker.address);
        }
    }
    let cached_blocks = best.depths.any();
    let cached_tokens = u64::from(cached_blocks) * u64::from(prompt.block_size);
    let uncached_tokens = prompt.tokens.saturating_sub(cached_tokens);
    let ranked = pool.has_ranks();
    Some(Route { destinations, rank, ranked, cached_blocks, uncached_tokens, lookup })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
