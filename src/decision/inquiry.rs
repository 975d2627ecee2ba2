//! From a prompt's hashes to a decision.

use std::net::SocketAddr;
use std::rc::Rc;

use warmroute_routing::choose::{Candidate, Choice, Limits, Prompt, Question, Rule, Selection, Selector};
use warmroute_routing::hash::SequenceHash;
use warmroute_routing::lookup::{Progress, is_published};
use warmroute_routing::page::Generation;
use warmroute_routing::pool::Pool;

use super::{Basis, Decision, Fallback, LookupFigures, Reason, Route};
use crate::failures::Failures;
use crate::fleet::Fleet;
use crate::host::{Host, Phase};
use crate::index::{IndexReader, PoolView, Snapshot};
use crate::ledger::Ledger;
use crate::recent::{Assumed, RecentRoutes};
use crate::sessions::{MOST_SURPLUS_TOKENS, Sessions};
use crate::trust::{Prediction, Trust};
use crate::wishes::{Session, Wishes};

/// What a decision is made from.
pub struct Surroundings<'a, H> {
    /// The proxy.
    pub host: &'a H,
    /// The pool's index.
    pub index: &'a mut IndexReader,
    /// What the workers have in hand.
    pub ledger: &'a mut Ledger,
    /// What they have in hand of other proxies' requests.
    pub fleet: &'a Fleet,
    /// The workers that have just failed.
    pub failures: &'a Failures,
    /// What was just routed, where that counts. Then a prompt that nobody holds goes by load, and is remembered.
    pub recent: Option<&'a mut RecentRoutes>,
    /// The workers that sessions were last sent to.
    pub sessions: &'a mut Sessions,
    /// Whom the index may be believed about.
    pub trust: &'a Trust,
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
    wishes: Wishes,
    /// The worker of the request's session, once it has been looked up.
    keeper: Option<Option<SocketAddr>>,
    tie: u64,
}

// === impl Inquiry ===

impl Inquiry {
    /// Nothing is known yet. `tie` is a number that differs from request to request.
    pub fn new(tie: u64, wishes: Wishes) -> Self {
        Self { selector: Selector::default(), view: None, wishes, keeper: None, tie }
    }

    /// The session that the request belongs to.
    pub fn session(&self) -> Option<Session> {
        self.wishes.session
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
        around.host.begins(Phase::Choose);
        let candidates = match self.candidates(around, &view) {
            Ok(candidates) => candidates,
            Err(reason) => return Some(Decision::fallback(reason)),
        };
        // Who keeps the session is looked into alone; the others are named behind it, for want of a better host.
        let kept = self.kept(around, &view, &candidates);
        let narrowed = kept.map(|kept| [kept]);
        self.look_into(&view);
        if !around.trust.is_empty() {
            let (trust, now_us) = (around.trust, around.now_us);
            let liars = view.pool.workers.iter().filter(|worker| trust.is_distrusted(worker.address, now_us));
            self.selector.ignore(liars.map(|worker| worker.slot));
        }
        let assumed = self.assume(around, &view, asked);
        let looked_into: &[Candidate] = match &narrowed {
            Some(kept) => kept,
            None => &candidates,
        };
        let question = self.question(asked, looked_into, around.rule, around.bounds);
        let mut pages = around.index.pages(around.host, &snapshot);
        let progress = self.selector.advance(&mut pages, view.shape(), asked.hashes, asked.whole, &question);
        if progress == Progress::MoreBlocks && !asked.last {
            return None;
        }
        let mut selection = self.selector.selection(&question);
        if let Some(kept) = kept {
            let others = self.question(asked, &candidates, around.rule, around.bounds);
            let others = self.selector.selection(&others).choices.into_iter();
            selection.choices.extend(others.filter(|choice| choice.slot != kept.slot));
            selection.choices.truncate(around.bounds.max_destinations);
        }
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
            prompt_tokens: question.prompt.tokens,
            whole: asked.whole,
            reads: selection.reads + more_reads,
            index_age_us: snapshot.age_us,
        };
        let route =
            best.and_then(|_| route(&view.pool, &selection, &question.prompt, published_blocks, lookup));
        let route = route.map(|route| Route {
            prediction: route.prediction.map(|prediction| Prediction {
                exact: asked.whole && self.selector.is_exact(route.slot),
                ..prediction
            }),
            ..route
        });
        let cold = || Decision::Fallback(Fallback { reason: Reason::Cold, lookup: Some(lookup) });
        Some(route.map_or_else(cold, Decision::Route))
    }

    /// The workers that the request may go to, with their load as it counts for it.
    fn candidates<H: Host>(
        &self,
        around: &Surroundings<'_, H>,
        view: &PoolView,
    ) -> Result<Vec<Candidate>, Reason> {
        let mut candidates = view.candidates(around.ledger, around.fleet, around.failures, around.now_us);
        if candidates.is_empty() {
            return Err(Reason::NoWorkers);
        }
        if let Some(subset) = &self.wishes.subset {
            let address = |slot| view.pool.worker(slot).map(|worker| worker.address);
            candidates.retain(|candidate| address(candidate.slot).is_some_and(|address| subset.has(address)));
            if candidates.is_empty() {
                return Err(Reason::Subset);
            }
        }
        if let Some(scale) = self.wishes.load_scale {
            candidates.iter_mut().for_each(|candidate| candidate.load = scale.apply(candidate.load));
        }
        Ok(candidates)
    }

    /// The candidate that the request's session was last sent to, unless it is saturated.
    fn kept<H: Host>(
        &mut self,
        around: &mut Surroundings<'_, H>,
        view: &PoolView,
        candidates: &[Candidate],
    ) -> Option<Candidate> {
        let session = self.wishes.session?;
        let keeper =
            *self.keeper.get_or_insert_with(|| around.sessions.worker(around.host, session, around.now_us));
        let keeper = keeper?;
        let is_keeper = |candidate: &&Candidate| {
            view.pool.worker(candidate.slot).is_some_and(|worker| worker.address == keeper)
        };
        let kept = candidates.iter().find(is_keeper)?;
        let least = candidates.iter().map(|candidate| candidate.load.prefill_tokens).min()?;
        let surplus = kept.load.prefill_tokens.saturating_sub(least);
        (surplus <= MOST_SURPLUS_TOKENS).then_some(*kept)
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
    let Some(held) = asked.hashes.get(..depth as usize) else { return (depth, 0) };
    if part == depth {
        return (depth, 0);
    }
    let mut pages = around.index.pages(around.host, snapshot);
    let heard_of = is_published(&mut pages, snapshot.view.shape(), held, best.slot);
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
    // An engine computes at least a prompt's last token, and so its block.
    let most_blocks = prompt.tokens.saturating_sub(1) / u64::from(prompt.block_size.max(1));
    let blocks = u64::from(cached_blocks).min(most_blocks);
    Some(Route {
        prediction: (basis != Basis::Recent).then_some(Prediction { blocks, exact: false }),
        block_size: prompt.block_size,
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
