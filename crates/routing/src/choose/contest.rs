//! The search for the cheapest candidate.

use super::{Candidate, Choice, Cost, CostKey, Fleet, Load, Policy, Question, find};
use crate::lookup::{Depths, Match, Next, Refine};
use crate::page::Slot;

/// The candidates, and what their costs are bounded by.
pub(super) struct Contest<'a, P> {
    pub(super) question: &'a Question<'a, P>,
    fleet: Fleet,
    /// Nobody has less in hand, by any figure.
    least: Load,
    /// The least cost of those without a match: known once the matches are.
    unmatched: Option<Option<CostKey>>,
}

/// The best candidates so far, best first.
struct Ranking {
    best: Vec<Ranked>,
    wanted: usize,
    candidates: usize,
    /// The candidate whose turn is first: another for each request, so that ties are spread.
    first: usize,
}

struct Ranked {
    /// Of equal costs the one whose turn comes first wins.
    order: (CostKey, usize),
    choice: Choice,
}

// === impl Contest ===

impl<'a, P: Policy> Contest<'a, P> {
    pub(super) fn new(question: &'a Question<'a, P>) -> Self {
        let mut loads = question.candidates.iter().map(|candidate| candidate.load);
        let first = loads.next().unwrap_or_default();
        let least = loads.fold(first, |least, load| Load {
            requests: least.requests.min(load.requests),
            prefill_tokens: least.prefill_tokens.min(load.prefill_tokens),
            blocks: least.blocks.min(load.blocks),
        });
        Self { question, fleet: Fleet { least_prefill_tokens: least.prefill_tokens }, least, unmatched: None }
    }

    fn cost(&self, depths: &Depths, load: &Load) -> Cost {
        self.question.policy.cost(&self.question.prompt, depths, load, &self.fleet)
    }

    /// What a candidate costs at least of which only this is known: how many blocks it holds at most.
    fn floor(&self, blocks: u32) -> CostKey {
        self.cost(&Depths::all_gpu(blocks), &self.least).key()
    }

    fn candidate(&self, found: &Match) -> Option<&'a Candidate> {
        self.question.candidates.get(find(self.question.candidates, found.slot)?)
    }

    /// Who of the matches is sure to cost least, by what is known of them, and whether another one is sure to cost as little.
    fn surest(&self, matches: &[Match]) -> Option<(usize, CostKey, bool)> {
        let mut surest = None;
        for (i, found) in matches.iter().enumerate() {
            let Some(candidate) = self.candidate(found) else { continue };
            let cost = self.cost(&found.at_least, &candidate.load).key();
            surest = match surest {
                Some((_, least, _)) if cost > least => surest,
                Some((first, least, _)) if cost == least => Some((first, least, true)),
                _ => Some((i, cost, false)),
            };
        }
        surest
    }

    /// The candidates that are not among the matches, each with its place. Both lists ascend by slot.
    fn unmatched<'m>(
        &self,
        matches: &'m [Match],
    ) -> impl Iterator<Item = (usize, &'a Candidate)> + use<'a, 'm, P> {
        let mut matches = matches.iter().peekable();
        self.question.candidates.iter().enumerate().filter(move |(_, candidate)| {
            while matches.next_if(|found| found.slot < candidate.slot).is_some() {}
            matches.next_if(|found| found.slot == candidate.slot).is_none()
        })
    }

    /// The least cost of candidates that hold nothing.
    fn least_unmatched(&self, matches: &[Match]) -> Option<CostKey> {
        self.unmatched(matches)
            .map(|(_, candidate)| self.cost(&Depths::default(), &candidate.load).key())
            .min()
    }

    /// The best, as many as are wanted, by what is known at least: of others than the matches, nothing.
    pub(super) fn ranking(&self, matches: &[Match]) -> Vec<Choice> {
        let candidates = self.question.candidates;
        let mut ranking = Ranking::new(self.question);
        for found in matches {
            let Some(at) = find(candidates, found.slot) else { continue };
            let Some(Candidate { slot, load }) = candidates.get(at) else { continue };
            ranking.add(at, *slot, found.at_least, self.cost(&found.at_least, load));
        }
        if !ranking.is_beyond(self.floor(0)) {
            for (at, Candidate { slot, load }) in self.unmatched(matches) {
                let depths = Depths::default();
                ranking.add(at, *slot, depths, self.cost(&depths, load));
            }
        }
        ranking.best.into_iter().map(|ranked| ranked.choice).collect()
    }
}

impl<P: Policy> Refine for Contest<'_, P> {
    fn next(&mut self, matches: &[Match], others: u32) -> Next {
        let surest = self.surest(matches);
        if others > 0 {
            // Whoever may cost as little as the best is wanted, too: ties are spread over all.
            if surest.is_none_or(|(_, cost, _)| cost >= self.floor(others)) {
                return Next::Open;
            }
            if matches.len() < self.question.limits.choices.min(self.question.candidates.len()) {
                return Next::OpenSome(self.question.tie);
            }
        }
        let unmatched = match self.unmatched {
            // None of them can cost less.
            _ if surest.is_some_and(|(_, cost, _)| cost < self.floor(others)) => None,
            Some(known) => known,
            None => *self.unmatched.insert(self.least_unmatched(matches)),
        };
        // Where two are sure to cost the same, either may be chosen: then it matters what the first may cost, too.
        let (champion, sure) = match (surest, unmatched) {
            (Some((i, cost, false)), None) => (Some(i), cost),
            (Some((i, cost, false)), Some(least)) if cost < least => (Some(i), cost),
            (Some((_, cost, _)), least) => (None, least.map_or(cost, |least| least.min(cost))),
            (None, Some(least)) => (None, least),
            (None, None) => return Next::Done,
        };
        // Who else may still cost less?
        let is_rival = |i: usize, found: &Match| {
            let may_win = |candidate: &Candidate| self.cost(&found.at_most, &candidate.load).key() < sure;
            !found.is_exact() && Some(i) != champion && self.candidate(found).is_some_and(may_win)
        };
        let mut rivals = matches.iter().enumerate().filter(|(i, found)| is_rival(*i, found));
        let Some(first) = rivals.next() else { return Next::Done };
        let champion = champion.and_then(|i| Some((i, matches.get(i)?)));
        let wider = |a: (usize, _), b: (usize, _)| if Match::doubt(b.1) > Match::doubt(a.1) { b } else { a };
        Next::Narrow(rivals.chain(champion).fold(first, wider).0)
    }
}

// === impl Ranking ===

impl Ranking {
    fn new<P>(question: &Question<'_, P>) -> Self {
        let candidates = question.candidates.len();
        let wanted = question.limits.choices.min(candidates);
        let first = question.tie.checked_rem(candidates as u64).unwrap_or(0) as usize;
        Self { best: Vec::with_capacity(wanted + 1), wanted, candidates, first }
    }

    /// Adds the candidate in this place.
    #[inline]
    fn add(&mut self, at: usize, slot: Slot, depths: Depths, cost: Cost) {
        let turn = if at < self.first { at + self.candidates - self.first } else { at - self.first };
        let order = (cost.key(), turn);
        if self.best.len() < self.wanted || self.best.last().is_some_and(|last| order < last.order) {
            self.insert(Ranked { order, choice: Choice { slot, depths, cost } });
        }
    }

    fn insert(&mut self, ranked: Ranked) {
        let place = self.best.partition_point(|better| better.order < ranked.order);
        self.best.insert(place, ranked);
        self.best.truncate(self.wanted);
    }

    /// Whether nobody who costs at least so much can be among the best.
    fn is_beyond(&self, cost: CostKey) -> bool {
        self.best.len() == self.wanted && self.best.last().is_none_or(|last| last.order.0 < cost)
    }
}
