//! A selection: candidates, refusals, and what is booked.

use std::collections::HashSet;

use warmroute_routing::choose::{self, Candidate, Limits, Question, Selection, select};
use warmroute_routing::page::Slot;

use super::Desk;
use super::books::Work;
use crate::bindings::exports::warmroute::routing::router as wit;
use crate::prefix_index::Seated;
use crate::tokens::Read;
use crate::{convert, tokens};

/// The most workers in a ranked list.
const MAX_RANKED: u32 = 1_024;

// === impl Desk ===

impl Desk {
    pub(crate) fn select_worker(
        &mut self,
        request_id: String,
        prompt: wit::Prompt,
        candidates: &wit::Candidates,
        options: wit::Options,
    ) -> Result<wit::Selection, wit::Refusal> {
        self.books.expire(options.now_ms, self.booking_life_ms);
        let (seated, block_size) = {
            let index = self.index.borrow();
            (chosen_from(index.seated(), candidates), index.block_size())
        };
        if seated.is_empty() {
            return Err(wit::Refusal::NoCandidates);
        }
        let Read { hashes, prompt } = tokens::prompt(prompt, block_size).map_err(wit::Refusal::BadRequest)?;
        if prompt.tokens == 0 {
            return Err(wit::Refusal::NoTokens);
        }
        self.check_age(options.now_ms)?;

        let load = |seated: &Seated| self.books.load((seated.worker.id, seated.worker.rank));
        let candidates: Vec<_> =
            seated.iter().map(|seated| Candidate { slot: seated.slot, load: load(seated) }).collect();
        // Where there is no choice there is nothing to spread: a host that books what it has chosen itself, by asking with one
        // candidate, must not make every other worker be passed over.
        self.selections = self.selections.wrapping_add(u64::from(candidates.len() > 1));
        let question = Question {
            prompt,
            candidates: &candidates,
            policy: &self.rule,
            limits: Limits { max_reads: u32::MAX, choices: options.ranked.clamp(1, MAX_RANKED) as usize },
            tie: self.selections,
        };
        let selection = {
            let mut index = self.index.borrow_mut();
            let (mut store, shape) = index.pages();
            select(&mut store, shape, &hashes, &question)
        };
        let selection = told(&selection, &seated, prompt).ok_or(wit::Refusal::NoCandidates)?;
        if options.book {
            let cached = u64::from(selection.depths.external) * u64::from(block_size);
            let work = Work {
                prefill_tokens: prompt.tokens.saturating_sub(cached),
                blocks: prompt.tokens.div_ceil(u64::from(block_size)),
            };
            let worker = (selection.worker.id, selection.worker.rank);
            self.books.book(request_id, worker, work, options.now_ms);
        }
        Ok(selection)
    }

    fn check_age(&self, now_ms: u64) -> Result<(), wit::Refusal> {
        let heard_at_ms = self.index.borrow().heard_at_ms.ok_or(wit::Refusal::NoIndex)?;
        let age_ms = now_ms.saturating_sub(heard_at_ms);
        match self.max_age_ms {
            Some(max_age_ms) if age_ms > max_age_ms => Err(wit::Refusal::Stale(age_ms)),
            _ => Ok(()),
        }
    }
}

/// The candidates of the index, ascending by slot.
fn chosen_from(mut seated: Vec<Seated>, candidates: &wit::Candidates) -> Vec<Seated> {
    match candidates {
        wit::Candidates::All => {}
        wit::Candidates::Ids(ids) => {
            let ids: HashSet<u64> = ids.iter().copied().collect();
            seated.retain(|seated| ids.contains(&seated.worker.id));
        }
        wit::Candidates::Workers(workers) => {
            let keys: HashSet<_> = workers.iter().map(|worker| (worker.id, worker.rank)).collect();
            seated.retain(|seated| keys.contains(&(seated.worker.id, seated.worker.rank)));
        }
    }
    seated.sort_unstable_by_key(|seated| seated.slot);
    seated
}

/// The selection as the contract has it; none without a choice.
fn told(selection: &Selection, seated: &[Seated], prompt: choose::Prompt) -> Option<wit::Selection> {
    let worker = |slot: Slot| {
        let place = seated.binary_search_by_key(&slot, |seated| seated.slot).ok()?;
        Some(seated.get(place)?.worker)
    };
    let ranked = |choice: &choose::Choice| {
        Some(wit::Ranked {
            worker: worker(choice.slot)?,
            depths: convert::depths_out(&choice.depths),
            cost: cost_out(choice.cost),
        })
    };
    let ranked: Vec<_> = selection.choices.iter().filter_map(ranked).collect();
    let best = *ranked.first()?;
    let wit::Ranked { worker, depths, cost } = best;
    Some(wit::Selection { worker, depths, cost, prompt_blocks: prompt.blocks, ranked })
}

pub(super) fn cost_out(cost: choose::Cost) -> wit::Cost {
    wit::Cost { first: cost.first, then: cost.then }
}
