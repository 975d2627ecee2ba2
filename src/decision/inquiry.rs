//! From a prompt's hashes to a decision.

use std::rc::Rc;

use warmroute_routing::choose::{Candidate, Choice, Limits, Prompt, Question, Rule, Selection, Selector};
use warmroute_routing::hash::SequenceHash;
use warmroute_routing::lookup::{Progress, is_published};
use warmroute_routing::page::Generation;
use warmroute_routing::pool::Pool;

use super::{Basis, Decision, Fallback, LookupFigures, Reason, Route};
use crate::failures::Failures;
use crate::host::Host;
use crate::index::{IndexReader, PoolView, Snapshot};
use crate::ledger::Ledger;
use crate::recent::{Assumed, RecentRoutes};

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
    /// What was just routed, where that counts. Then a prompt that nobody holds goes by load, and is remembered.
    pub recent: Option<&'a mut RecentRoutes>,
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

    /// The generation of the index that was looked into, if one was.
    pub fn generation(&self) -> Option<Generation> {
        self.view.as_ref().map(|view| view.pool.generation)
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
        let assumed = self.assume(around, &view, asked);
        let question = self.question(asked, &candidates, around.rule, around.bounds);
        let mut pages = around.index.pages(around.host, &snapshot);
        let progress = self.selector.advance(&mut pages, view.shape(), asked.hashes, asked.whole, &question);
        if progress == Progress::MoreBlocks && !asked.last {
            return None;
        }
        let selection = self.selector.selection(&question);
        let best = selection.choices.first();
        // What was just routed to another may turn out to be the rest of this prompt, too.
        if !asked.last && assumed.open.iter().any(|slot| best.is_some_and(|best| best.slot != *slot)) {
            return None;
        }
        let best = best.filter(|_| selection.matched || around.recent.is_some());
        let (published_blocks, more_reads) =
            best.map_or((0, 0), |best| published_blocks(around, &snapshot, best, asked));
        let lookup = LookupFigures {
            prompt_blocks: question.prompt.blocks,
            whole: asked.whole,
            reads: selection.reads + more_reads,
            index_age_us: snapshot.age_us,
        };
        let route =
            best.and_then(|_| route(&view.pool, &selection, &question.prompt, published_blocks, lookup));
        let cold = || Decision::Fallback(Fallback { reason: Reason::Cold, lookup: Some(lookup) });
        Some(route.map_or_else(cold, Decision::Route))
    }

    /// Looks up what was just routed.
    fn assume<H: Host>(
        &mut self,
        around: &mut Surroundings<'_, H>,
        view: &PoolView,
        asked: &Asked<'_>,
    ) -> Assumed {
        let Some(recent) = &mut around.recent else { return Assumed::default() };
        let assumed = recent.look_up(around.host, view.pool.generation, asked.hashes, around.now_us);
        self.selector.assume(&assumed.floors);
        assumed
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

/// How much of the best worker's depth the index has, and how many pages were read to know. Where it is just what was sent
/// to the worker, the index may have heard of that by now.
fn published_blocks<H: Host>(
    around: &mut Surroundings<'_, H>,
    snapshot: &Snapshot,
    best: &Choice,
    asked: &Asked<'_>,
) -> (u32, u32) {
    let depth = best.depths.any();
    let Some(recent) = &around.recent else { return (depth, 0) };
    let part = recent.published_part(best.slot, asked.hashes, depth, around.now_us);
    let Some(last) = (depth as usize).checked_sub(1).and_then(|last| asked.hashes.get(last)) else {
        return (depth, 0);
    };
    if part == depth {
        return (depth, 0);
    }
    let mut pages = around.index.pages(around.host, snapshot);
    let heard_of = is_published(&mut pages, snapshot.view.shape(), *last, best.slot);
    (if heard_of { depth } else { part }, 1)
}

/// The workers of a selection; none where it has none.
fn route(
    pool: &Pool,
    selection: &Selection,
    prompt: &Prompt,
    published_blocks: u32,
    lookup: LookupFigures,
) -> Option<Route> {
    let best = selection.choices.first()?;
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
    let basis = match cached_blocks {
        0 => Basis::Cold,
        _ if published_blocks < cached_blocks => Basis::Recent,
        _ => Basis::Warm,
    };
    Some(Route {
        destinations,
        rank,
        ranked: pool.has_ranks(),
        slot: best.slot,
        basis,
        cached_blocks,
        published_blocks,
        uncached_tokens: prompt.tokens.saturating_sub(cached_tokens),
        lookup,
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
