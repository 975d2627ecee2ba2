//! One request's way through the filter.
//!
//! ```text
//! headers --> left alone (not ours to read)
//!         --> decided (prompt in a header, or nothing to wait for)
//!         --> Reading --body--> decided: what is there is enough, or there will be no prompt, or no more may be held
//!                 \--text--> Asking --answer of the collector, or its time is over--> decided
//! decided --> the rest of the body streams
//!         --> destination header set, or not --> response: load booked to who really served --> done: released
//! ```
//!
//! A request waits only while its prompt may still come (see [`Waiting`] for when Envoy does not show it), or for so long as
//! the configuration allows for its blocks (see [`Questions`]), and whatever happens it goes on: to the workers that were
//! decided, or to the proxy's own choice.

mod body;
mod filter;
mod handover;
mod headers;
mod question;
mod served;
#[cfg(test)]
mod tests;
mod usage;
mod waiting;

use std::net::SocketAddr;

use warmroute_routing::loads::WorkerKey;
use warmroute_routing::prompt_blocks::{Extent, PromptBlocks};

use crate::decision::{Asked, Decision, Inquiry, Reason, Route};
use crate::host::{Call, CallAnswer, CallId, Phase, RequestHost};
use crate::ledger::{Booking, Work};
use crate::wishes::Wishes;
use body::{BodyReader, Step};
use handover::Place;
use headers::{HeaderPrompt, Intake};
use question::Asking;
use served::{Comparison, Rest, Sent, Served};
use usage::UsageReader;

pub use filter::Filter;
pub use question::Questions;
pub use waiting::{Overdue, Waiting};

/// One request.
#[derive(Debug, Default)]
pub struct Exchange {
    state: State,
    pool: Option<usize>,
    booking: Option<Booking>,
    /// What is read of the answer, where it is compared with what was predicted.
    comparison: Option<Box<Comparison>>,
    /// The rank that the request names, whoever serves it.
    rank: Option<u32>,
    /// What it asks of a worker that has nothing of its prompt.
    cold: Work,
    /// How long its blocks were waited for, in microseconds, where the collector was asked.
    waited_us: Option<u64>,
    /// What the response header says; none where none is sent.
    decision_text: Option<String>,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing to decide (any more).
    #[default]
    Passing,
    /// The body is held and read.
    Reading(Box<Reading>),
    /// The body is held, and the collector asked for its blocks.
    Asking(Box<Asking>),
    /// A decision fell; the request counts for the load of who serves it.
    Decided(Served),
}

/// A request whose decision waits for its body.
#[derive(Debug)]
struct Reading {
    body: BodyReader,
    inquiry: Inquiry,
    pool: usize,
    /// The time that was spent on the decision so far, in microseconds.
    spent_us: u64,
}

/// Whether the request goes on or is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on.
    Continue,
    /// It is held until the next callback.
    Hold,
    /// It is held, and the collector is to be asked: by [`Exchange::ask`].
    Ask,
}

/// What a piece of the body leads to.
enum Next {
    /// More of it is waited for.
    Hold,
    /// It is all there, and is to be tokenized.
    Ask,
    /// A decision fell.
    Decided(Decision),
}

// === impl Exchange ===

impl Exchange {
    /// The request's headers are there. `end`: no body follows.
    pub fn request_headers(&mut self, host: &impl RequestHost, filter: &mut Filter, end: bool) -> Flow {
        host.begins(Phase::Headers);
        let (intake, wishes) = headers::take_in(host, &filter.config, end);
        if matches!(intake, Intake::NotOurs) {
            return Flow::Continue;
        }
        self.pool = filter.pool_of(host);
        let outcome = match intake {
            Intake::NotOurs => return Flow::Continue,
            _ if self.pool.is_none() => Err(Reason::NoPool),
            Intake::Refused(reason) => Err(reason),
            Intake::Prompt(prompt) => self.decide(host, filter, prompt, wishes),
            Intake::Body { content_length } => match self.wait_for_body(host, filter, content_length, wishes)
            {
                Ok(()) => return Flow::Hold,
                Err(reason) => Err(reason),
            },
        };
        let (decision, spent_us) = outcome.unwrap_or_else(|reason| (Decision::fallback(reason), 0));
        self.carry_out(host, filter, &decision, spent_us)
    }

    fn decide(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        prompt: HeaderPrompt,
        wishes: Wishes,
    ) -> Result<(Decision, u64), Reason> {
        let start_us = host.now_us();
        let pool = self.pool.ok_or(Reason::NoPool)?;
        let view = filter.ready(host, pool)?;
        host.begins(Phase::Hash);
        let (hashes, tokens) = prompt.hash(&view.pool);
        let asked =
            Asked { hashes: &hashes, block_size: view.pool.block_size, tokens, whole: true, last: true };
        let mut inquiry = filter.inquiry(wishes);
        let decision =
            filter.advance(host, pool, &mut inquiry, &asked, start_us).ok_or(Reason::ShortPrompt)?;
        Ok((decision, host.now_us().saturating_sub(start_us)))
    }

    fn wait_for_body(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        content_length: Option<u64>,
        wishes: Wishes,
    ) -> Result<(), Reason> {
        let pool = self.pool.ok_or(Reason::NoPool)?;
        let view = filter.ready(host, pool)?;
        if !filter.waiting.may_hold() {
            return Err(Reason::BodyNotSeen);
        }
        let takes_text = filter.tokenizer(pool).is_some();
        let body = BodyReader::new(view, filter.config.max_held_bytes, content_length, takes_text);
        let inquiry = filter.inquiry(wishes);
        self.state = State::Reading(Box::new(Reading { body, inquiry, pool, spent_us: 0 }));
        Ok(())
    }

    /// `len` bytes of the request's body are there: all that is held of it, or what has come since. `end`: it is complete.
    pub fn request_body(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        len: usize,
        end: bool,
    ) -> Flow {
        match &mut self.state {
            State::Reading(reading) => {
                filter.waiting.body_seen();
                let next = reading.read(host, filter, |body| body.read(host, len, end));
                self.go_on(host, filter, next)
            }
            State::Decided(served) => {
                let (booking, pool) = (self.booking.as_mut(), self.pool);
                served.stream(host, len, end, |settled| {
                    if let Some(booking) = booking {
                        filter.ledger.correct(booking, settled.uncached_tokens);
                    }
                    if let (Some(pool), Some(hashes)) = (pool, settled.hashes) {
                        filter.remember(host, pool, &settled.sent, hashes);
                    }
                });
                Flow::Continue
            }
            State::Asking(_) => Flow::Hold,
            State::Passing => Flow::Continue,
        }
    }

    /// The request's trailers are there: its body was complete before, without having been said to be.
    pub fn request_trailers(&mut self, host: &impl RequestHost, filter: &mut Filter) -> Flow {
        match &mut self.state {
            State::Reading(reading) => {
                let next = reading.read(host, filter, BodyReader::finish);
                self.go_on(host, filter, next)
            }
            State::Asking(_) => Flow::Hold,
            State::Passing | State::Decided(_) => Flow::Continue,
        }
    }

    /// Asks the collector for the blocks of a body that is all there. `post` makes the call. Its answer is what the request
    /// is now held for, so many microseconds at most; without a call it goes on.
    pub fn ask(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        post: impl FnOnce(&Call<'_>, &[u8]) -> Option<CallId>,
    ) -> Option<(CallId, u64)> {
        if !matches!(self.state, State::Reading(_)) {
            return None;
        }
        let State::Reading(reading) = std::mem::take(&mut self.state) else { return None };
        let Reading { body, inquiry, pool, spent_us } = *reading;
        let (block_size, bytes) = (body.block_size(), body.bytes_read());
        // What was read of the body is not needed any more.
        drop(body);
        let since_us = host.now_us();
        let asked = filter.tokenizer(pool).and_then(|tokenizer| {
            let body = host.request_body(0, usize::try_from(bytes).ok()?)?;
            let headers = host.request_headers();
            let path = headers.get(":path")?;
            let handover = tokenizer.handover(path);
            let call = tokenizer.ask(path, handover.is_some(), &body, post)?;
            Some((call, handover, tokenizer.budget_us(bytes)))
        });
        match asked {
            Some((call, handover, budget_us)) => {
                let asking = Asking { call, inquiry, pool, block_size, bytes, handover, since_us, spent_us };
                self.state = State::Asking(Box::new(asking));
                Some((call, budget_us))
            }
            None => {
                filter.metrics(self.pool).asked(host, Some(Reason::CollectorUnavailable), 0);
                filter.metrics(self.pool).held(host, bytes);
                self.carry_out(host, filter, &Decision::fallback(Reason::CollectorUnavailable), spent_us);
                None
            }
        }
    }

    /// The collector has answered, or the proxy in its place; none: the time for that is long over. The request goes on.
    pub fn answered(&mut self, host: &impl RequestHost, filter: &mut Filter, answer: Option<&CallAnswer>) {
        if !matches!(self.state, State::Asking(_)) {
            return;
        }
        let State::Asking(asking) = std::mem::take(&mut self.state) else { return };
        let Asking { mut inquiry, pool, block_size, bytes, handover, since_us, spent_us, .. } = *asking;
        let start_us = host.now_us();
        let waited_us = start_us.saturating_sub(since_us);
        let blocks =
            answer.ok_or(Reason::CollectorLate).and_then(|answer| question::blocks(answer, block_size));
        filter.metrics(self.pool).asked(host, blocks.as_ref().err().copied(), waited_us);
        filter.metrics(self.pool).held(host, bytes);
        self.waited_us = Some(waited_us);
        if let (Ok(blocks), Some(place)) = (&blocks, handover.filter(|_| filter.steers())) {
            hand_over(host, bytes, place, blocks);
        }
        let decision = blocks.and_then(|blocks| {
            let asked = Asked {
                hashes: &blocks.hashes,
                block_size,
                tokens: u64::from(blocks.token_count),
                whole: blocks.extent == Extent::Whole,
                last: true,
            };
            filter.advance(host, pool, &mut inquiry, &asked, start_us).ok_or(Reason::ShortPrompt)
        });
        let decision = decision.unwrap_or_else(Decision::fallback);
        let spent_us = spent_us.saturating_add(host.now_us().saturating_sub(start_us));
        self.carry_out(host, filter, &decision, spent_us);
    }

    /// The request has been held for too long without a sight of its body: it goes on without a decision.
    pub fn free(&mut self, host: &impl RequestHost, filter: &mut Filter) {
        if matches!(self.state, State::Reading(_)) {
            self.carry_out(host, filter, &Decision::fallback(Reason::BodyNotSeen), 0);
        }
    }

    fn go_on(&mut self, host: &impl RequestHost, filter: &mut Filter, next: Next) -> Flow {
        let decision = match next {
            Next::Hold => return Flow::Hold,
            Next::Ask => return Flow::Ask,
            Next::Decided(decision) => decision,
        };
        let State::Reading(reading) = std::mem::take(&mut self.state) else { return Flow::Continue };
        filter.metrics(self.pool).held(host, reading.body.bytes_read());
        let flow = self.carry_out(host, filter, &decision, reading.spent_us);
        if let (State::Decided(served), Decision::Route(route)) = (&mut self.state, &decision) {
            served.rest = reading.rest(route);
        }
        flow
    }

    fn carry_out(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        decision: &Decision,
        spent_us: u64,
    ) -> Flow {
        let (steers, now_us) = (filter.steers(), host.now_us());
        let mut served = Served::default();
        if let Some(lookup) = decision.lookup() {
            self.cold =
                Work { prefill_tokens: lookup.prompt_tokens, blocks: u64::from(lookup.prompt_blocks) };
        }
        if let Decision::Route(route) = decision
            && steers
        {
            host.begins(Phase::Steer);
            headers::name_destination(host, &filter.config, route);
            served.named = route.destinations.first().copied();
            served.work = Work { prefill_tokens: route.uncached_tokens, ..self.cold };
            self.rank = Some(route.rank);
            // Booked at once, so that the next request sees it; corrected when it is known who really served.
            self.booking = served.named.map(|address| {
                let place = filter.ledger.place(WorkerKey { address, rank: self.rank });
                filter.ledger.book(place, served.work, now_us)
            });
        }
        self.comparison = match decision {
            Decision::Route(route) if steers => comparison(filter, route),
            _ => None,
        };
        host.begins(Phase::Account);
        filter.metrics(self.pool).count(host, decision, steers, spent_us);
        filter.ledger.write(host, now_us);
        if filter.config.decision_header.is_some() {
            self.decision_text = Some(headers::decision_text(decision, steers, self.waited_us));
        }
        self.state = State::Decided(served);
        Flow::Continue
    }

    /// The response's headers are there.
    pub fn response_headers(&mut self, host: &impl RequestHost, filter: &mut Filter) {
        host.begins(Phase::Response);
        if let (Some(name), Some(text)) = (&filter.config.decision_header, &self.decision_text) {
            host.set_response_header(name, text);
        }
        if let State::Decided(served) = &self.state {
            let (named, work) = (served.named, served.work);
            // Only a whole answer of the one who was named says what it had.
            if self.comparison.is_some() && !is_readable(host) {
                self.comparison = None;
            }
            self.book_who_served(host, filter, named, work);
        }
    }

    /// Moves the booking to the worker that really serves: after a retry, a fallback, an unknown host.
    fn book_who_served(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        named: Option<SocketAddr>,
        work: Work,
    ) {
        let address = host.upstream_address();
        let address = address.and_then(|bytes| std::str::from_utf8(&bytes).ok()?.parse::<SocketAddr>().ok());
        if let Some(named) = named {
            filter.learn(host, named, address);
        }
        if address != named {
            self.comparison = None;
        }
        if address == named && self.booking.is_some() {
            return;
        }
        self.release(filter);
        let now_us = host.now_us();
        if let Some(address) = address {
            let place = filter.ledger.place(WorkerKey { address, rank: self.rank });
            // What another than who was named has of the prompt is not known.
            let work = if named == Some(address) { work } else { self.cold };
            self.booking = Some(filter.ledger.book(place, work, now_us));
        }
        filter.ledger.write(host, now_us);
    }

    /// A part of the response's body is there: the prompt has been computed.
    pub fn response_body(&mut self, host: &impl RequestHost, filter: &mut Filter, len: usize) {
        if let Some(comparison) = &mut self.comparison {
            comparison.read(host, len);
        }
        if let Some(booking) = &mut self.booking {
            filter.ledger.prefill_done(booking, || host.now_us());
        }
    }

    /// The exchange is over, whichever way.
    pub fn done(&mut self, host: &impl RequestHost, filter: &mut Filter) {
        if let Some(comparison) = self.comparison.take()
            && let Some(actual_blocks) = comparison.actual_blocks()
        {
            let Comparison { worker, prediction, .. } = *comparison;
            filter.compared(host, self.pool, worker, prediction, actual_blocks);
        }
        if let State::Asking(asking) = std::mem::take(&mut self.state) {
            filter.questions.take(asking.call);
            filter.metrics(self.pool).gave_up_asking(host);
        }
        self.release(filter);
    }

    fn release(&mut self, filter: &mut Filter) {
        if let Some(booking) = self.booking.take() {
            filter.ledger.release(booking);
        }
    }
}

/// What to read of the answer, if it is one that is compared.
fn comparison(filter: &mut Filter, route: &Route) -> Option<Box<Comparison>> {
    let (worker, prediction) = (*route.destinations.first()?, route.prediction?);
    let compares = filter.compares(worker);
    let block_size = route.block_size;
    compares.then(|| Box::new(Comparison { worker, prediction, block_size, usage: UsageReader::default() }))
}

/// Puts a prompt's tokens in the place of its text, where they are all there.
fn hand_over(host: &impl RequestHost, bytes: u64, place: Place, blocks: &PromptBlocks) {
    let Some(tokens) = blocks.tokens.as_ref().filter(|_| blocks.extent == Extent::Whole) else { return };
    let body = usize::try_from(bytes).ok().and_then(|bytes| host.request_body(0, bytes));
    let Some(body) = body.and_then(|body| handover::with_tokens(&body, place, tokens)) else { return };
    if host.set_request_body(body.as_bytes()) && host.request_headers().get("content-length").is_some() {
        host.set_request_header("content-length", &body.len().to_string());
    }
}

/// Whether an answer is one of an engine's that can be read.
fn is_readable(host: &impl RequestHost) -> bool {
    host.response_header(":status").is_some_and(|status| status == b"200")
        && host.response_header("content-encoding").is_none()
}

// === impl Reading ===

impl Reading {
    /// Takes a step with the body.
    fn read(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        step: impl FnOnce(&mut BodyReader) -> Step<'_>,
    ) -> Next {
        let start_us = host.now_us();
        let next = match step(&mut self.body) {
            Step::Hold => Next::Hold,
            Step::Tokenize => Next::Ask,
            Step::GiveUp(reason) => Next::Decided(Decision::fallback(reason)),
            Step::Ask(asked) => {
                let decided = filter.advance(host, self.pool, &mut self.inquiry, &asked, start_us);
                decided.map_or(Next::Hold, Next::Decided)
            }
        };
        self.spent_us = self.spent_us.saturating_add(host.now_us().saturating_sub(start_us));
        next
    }

    /// What remains to be seen of the body, if the prompt has not come to its end.
    fn rest(self: Box<Self>, route: &Route) -> Option<Box<Rest>> {
        let generation = self.inquiry.generation().filter(|_| self.body.prompt_is_open())?;
        let sent = Sent { generation, slot: route.slot, base: route.published_blocks };
        Some(Box::new(Rest::new(self.body, sent, route.uncached_tokens)))
    }
}
