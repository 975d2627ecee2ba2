//! One request's way through the filter.
//!
//! ```text
//! headers --> left alone (not ours to read)
//!         --> decided (prompt in a header, or nothing to wait for)
//!         --> Reading --body--> decided: what is there is enough, or there will be no prompt, or no more may be held
//! decided --> the rest of the body streams
//!         --> destination header set, or not --> response: load booked to who really served --> done: released
//! ```
//!
//! A request waits only while its prompt may still come (see [`Waiting`] for when Envoy does not show it), and whatever
//! happens it goes on: to the workers that were
//! decided, or to the proxy's own choice.

mod body;
mod headers;
#[cfg(test)]
mod tests;
mod waiting;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use warmroute_routing::choose::Rule;

use crate::config::{FilterConfig, Mode, Pool};
use crate::decision::{Asked, Bounds, Decision, Inquiry, Reason, Surroundings};
use crate::failures::Failures;
use crate::host::{Host, RequestHost};
use crate::index::{IndexReader, PoolView};
use crate::ledger::{Booking, Ledger, Work};
use crate::metrics::RequestMetrics;
use body::{BodyReader, Step};
use headers::{HeaderPrompt, Intake};

pub use waiting::{Overdue, Waiting};

/// What all requests of one VM share.
#[derive(Debug)]
pub struct Filter {
    config: FilterConfig,
    pools: Vec<PoolState>,
    /// For requests of no pool.
    no_pool: RequestMetrics,
    ledger: Ledger,
    failures: Failures,
    /// The requests that wait for a body which may never be shown.
    pub waiting: Waiting<Weak<RefCell<Exchange>>>,
    /// Spreads ties: a number that differs from request to request.
    tie: u64,
    /// When it was last told how old the indexes are, in microseconds.
    age_told_at_us: u64,
}

/// How often it is told how old the indexes are, in microseconds.
const BETWEEN_AGES_US: u64 = 1_000_000;

#[derive(Debug)]
struct PoolState {
    index: IndexReader,
    rule: Rule,
    metrics: RequestMetrics,
}

/// One request.
#[derive(Debug, Default)]
pub struct Exchange {
    state: State,
    pool: Option<usize>,
    booking: Option<Booking>,
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

/// What to book once it is known who serves.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    /// Whom the filter named first.
    named: Option<SocketAddr>,
    /// What the request asks of the one who was named.
    work: Work,
    /// The body whose end was not waited for.
    rest: Option<Rest>,
}

/// A body that streams, whose prompt's length was only guessed.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// Bytes that were read for the decision, and that have come since.
    bytes_read: u64,
    bytes: u64,
    /// Tokens in the bytes that were read.
    tokens_read: u64,
    /// Tokens that the one who was named has cached.
    cached_tokens: u64,
}

/// Whether the request goes on or is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on.
    Continue,
    /// It is held until the next callback.
    Hold,
}

// === impl Filter ===

impl Filter {
    /// A filter by its configuration. `seed` is a random number.
    pub fn new(config: FilterConfig, host: &impl Host, seed: u64) -> Self {
        let pool = |pool: &Pool| PoolState {
            index: IndexReader::new(&pool.name),
            rule: pool.policy,
            metrics: RequestMetrics::define(host, &pool.name),
        };
        Self {
            pools: config.pools.iter().map(pool).collect(),
            no_pool: RequestMetrics::define_without_pool(host),
            config,
            ledger: Ledger::new(seed),
            failures: Failures::default(),
            waiting: Waiting::default(),
            tie: seed,
            age_told_at_us: 0,
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            max_index_age_us: self.config.max_index_age_ms.saturating_mul(1000),
            max_page_reads: u32::try_from(self.config.max_page_reads).unwrap_or(u32::MAX),
            max_destinations: self.config.max_destinations,
        }
    }

    fn pool_of(&self, host: &impl RequestHost) -> Option<usize> {
        // Reading the cluster's name costs a call into the host: not where every request goes to the same pool.
        if let [only] = self.config.pools.as_slice()
            && only.clusters.is_empty()
        {
            return Some(0);
        }
        let cluster = host.cluster_name()?;
        self.config.pool_for_cluster(std::str::from_utf8(&cluster).ok()?)
    }

    /// The pool, if a decision for it is worth waiting for.
    fn ready(&mut self, host: &impl Host, pool: usize) -> Result<Rc<PoolView>, Reason> {
        let max_age_us = self.bounds().max_index_age_us;
        let state = self.pools.get_mut(pool).ok_or(Reason::NoPool)?;
        state.index.ready(host, &mut self.ledger, host.now_us(), max_age_us)
    }

    fn inquiry(&mut self) -> Inquiry {
        self.tie = self.tie.wrapping_add(1);
        Inquiry::new(self.tie)
    }

    fn advance(
        &mut self,
        host: &impl Host,
        pool: usize,
        inquiry: &mut Inquiry,
        asked: &Asked<'_>,
        now_us: u64,
    ) -> Option<Decision> {
        let bounds = self.bounds();
        let Some(state) = self.pools.get_mut(pool) else { return Some(Decision::fallback(Reason::NoPool)) };
        let (index, ledger, failures) = (&mut state.index, &mut self.ledger, &self.failures);
        let rule = &state.rule;
        ledger.read_others(host, now_us);
        inquiry.advance(&mut Surroundings { host, index, ledger, failures, rule, bounds, now_us }, asked)
    }

    /// Remembers whether the worker that was named has served. Another that did, or a 503, says that it has not.
    fn learn(&mut self, host: &impl RequestHost, named: SocketAddr, served: Option<SocketAddr>) {
        let unavailable = || host.response_header(":status").is_some_and(|status| status == b"503");
        if served == Some(named) && !unavailable() {
            self.failures.served(named);
        } else {
            self.failures.failed(named, host.now_us());
        }
    }

    fn metrics(&self, pool: Option<usize>) -> &RequestMetrics {
        pool.and_then(|pool| self.pools.get(pool)).map_or(&self.no_pool, |state| &state.metrics)
    }

    fn steers(&self) -> bool {
        self.config.mode == Mode::Steer
    }

    /// Tells the other threads what is in flight here: what has changed since the last request, and that this VM lives.
    /// Tells the operator how old each index is: most of all where nobody refreshes it any more.
    pub fn tick(&mut self, host: &impl Host) {
        let now_us = host.now_us();
        self.ledger.write(host, now_us);
        if now_us.saturating_sub(self.age_told_at_us) < BETWEEN_AGES_US {
            return;
        }
        self.age_told_at_us = now_us;
        for pool in &self.pools {
            if let Some(age_us) = pool.index.age_us(host, now_us) {
                pool.metrics.index_age(host, age_us);
            }
        }
    }

    /// What the endpoint at an address has in hand, for tests and reports.
    pub fn load(&mut self, address: SocketAddr) -> warmroute_routing::choose::Load {
        let place = self.ledger.place(address);
        self.ledger.load(place)
    }
}

// === impl Exchange ===

impl Exchange {
    /// The request's headers are there. `end`: no body follows.
    pub fn request_headers(&mut self, host: &impl RequestHost, filter: &mut Filter, end: bool) -> Flow {
        let intake = headers::take_in(host, &filter.config, end);
        if matches!(intake, Intake::NotOurs) {
            return Flow::Continue;
        }
        self.pool = filter.pool_of(host);
        let outcome = match intake {
            Intake::NotOurs => return Flow::Continue,
            _ if self.pool.is_none() => Err(Reason::NoPool),
            Intake::Refused(reason) => Err(reason),
            Intake::Prompt(prompt) => self.decide(host, filter, prompt),
            Intake::Body { content_length } => match self.wait_for_body(host, filter, content_length) {
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
    ) -> Result<(Decision, u64), Reason> {
        let start_us = host.now_us();
        let pool = self.pool.ok_or(Reason::NoPool)?;
        let view = filter.ready(host, pool)?;
        let (hashes, tokens) = prompt.hash(&view.pool);
        let asked =
            Asked { hashes: &hashes, block_size: view.pool.block_size, tokens, whole: true, last: true };
        let mut inquiry = filter.inquiry();
        let decision =
            filter.advance(host, pool, &mut inquiry, &asked, start_us).ok_or(Reason::ShortPrompt)?;
        Ok((decision, host.now_us().saturating_sub(start_us)))
    }

    fn wait_for_body(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        content_length: Option<u64>,
    ) -> Result<(), Reason> {
        let pool = self.pool.ok_or(Reason::NoPool)?;
        let view = filter.ready(host, pool)?;
        if !filter.waiting.may_hold() {
            return Err(Reason::BodyNotSeen);
        }
        let body = BodyReader::new(view, filter.config.max_held_bytes, content_length);
        let inquiry = filter.inquiry();
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
                let decided = reading.read(host, filter, |body| body.read(host, len, end));
                self.go_on(host, filter, decided)
            }
            State::Decided(served) => {
                if let Some(booking) = &mut self.booking
                    && let Some(uncached_tokens) = served.stream(len, end)
                {
                    filter.ledger.correct(booking, uncached_tokens);
                }
                Flow::Continue
            }
            State::Passing => Flow::Continue,
        }
    }

    /// The request's trailers are there: its body was complete before, without having been said to be.
    pub fn request_trailers(&mut self, host: &impl RequestHost, filter: &mut Filter) -> Flow {
        let State::Reading(reading) = &mut self.state else { return Flow::Continue };
        let decided = reading.read(host, filter, BodyReader::finish);
        self.go_on(host, filter, decided)
    }

    /// The request has been held for too long without a sight of its body: it goes on without a decision.
    pub fn free(&mut self, host: &impl RequestHost, filter: &mut Filter) {
        if matches!(self.state, State::Reading(_)) {
            self.carry_out(host, filter, &Decision::fallback(Reason::BodyNotSeen), 0);
        }
    }

    fn go_on(&mut self, host: &impl RequestHost, filter: &mut Filter, decided: Option<Decision>) -> Flow {
        let Some(decision) = decided else { return Flow::Hold };
        let State::Reading(reading) = std::mem::take(&mut self.state) else { return Flow::Continue };
        filter.metrics(self.pool).held(host, reading.body.bytes_read());
        let flow = self.carry_out(host, filter, &decision, reading.spent_us);
        if let (State::Decided(served), Decision::Route(route)) = (&mut self.state, &decision) {
            served.rest = reading.rest(route.uncached_tokens);
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
        let steers = filter.steers();
        let mut served = Served::default();
        if let Decision::Route(route) = decision
            && steers
        {
            headers::name_destination(host, &filter.config, route);
            served.named = route.destinations.first().copied();
            served.work =
                Work { prefill_tokens: route.uncached_tokens, blocks: u64::from(route.lookup.prompt_blocks) };
            // Booked at once, so that the next request sees it; corrected when it is known who really served.
            self.booking = served.named.map(|address| {
                let place = filter.ledger.place(address);
                filter.ledger.book(place, served.work)
            });
        }
        filter.metrics(self.pool).count(host, decision, steers, spent_us);
        filter.ledger.write(host, host.now_us());
        if filter.config.decision_header.is_some() {
            self.decision_text = Some(headers::decision_text(decision, steers));
        }
        self.state = State::Decided(served);
        Flow::Continue
    }

    /// The response's headers are there.
    pub fn response_headers(&mut self, host: &impl RequestHost, filter: &mut Filter) {
        if let (Some(name), Some(text)) = (&filter.config.decision_header, &self.decision_text) {
            host.set_response_header(name, text);
        }
        if let State::Decided(served) = self.state {
            self.book_who_served(host, filter, served);
        }
    }

    /// Moves the booking to the worker that really serves: after a retry, a fallback, an unknown host.
    fn book_who_served(&mut self, host: &impl RequestHost, filter: &mut Filter, served: Served) {
        let address = host.upstream_address();
        let address = address.and_then(|bytes| std::str::from_utf8(&bytes).ok()?.parse::<SocketAddr>().ok());
        if let Some(named) = served.named {
            filter.learn(host, named, address);
        }
        if address == served.named && self.booking.is_some() {
            return;
        }
        self.release(filter);
        if let Some(address) = address {
            let place = filter.ledger.place(address);
            self.booking = Some(filter.ledger.book(place, served.work));
        }
        filter.ledger.write(host, host.now_us());
    }

    /// A part of the response's body is there: the prompt has been computed.
    pub fn response_body(&mut self, filter: &mut Filter) {
        if let Some(booking) = &mut self.booking {
            filter.ledger.prefill_done(booking);
        }
    }

    /// The exchange is over, whichever way.
    pub fn done(&mut self, filter: &mut Filter) {
        self.state = State::Passing;
        self.release(filter);
    }

    fn release(&mut self, filter: &mut Filter) {
        if let Some(booking) = self.booking.take() {
            filter.ledger.release(booking);
        }
    }
}

// === impl Reading ===

impl Reading {
    /// Takes a step with the body. A decision, if there is one now.
    fn read(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        step: impl FnOnce(&mut BodyReader) -> Step<'_>,
    ) -> Option<Decision> {
        let start_us = host.now_us();
        let decided = match step(&mut self.body) {
            Step::Hold => None,
            Step::GiveUp(reason) => Some(Decision::fallback(reason)),
            Step::Ask(asked) => filter.advance(host, self.pool, &mut self.inquiry, &asked, start_us),
        };
        self.spent_us = self.spent_us.saturating_add(host.now_us().saturating_sub(start_us));
        decided
    }

    /// What to correct the books by, if the prompt has not come to its end.
    fn rest(&self, uncached_tokens: u64) -> Option<Rest> {
        self.body.prompt_is_open().then(|| Rest {
            bytes_read: self.body.bytes_read(),
            bytes: self.body.bytes_read(),
            tokens_read: self.body.tokens_read(),
            cached_tokens: self.body.expected_tokens().saturating_sub(uncached_tokens),
        })
    }
}

// === impl Served ===

impl Served {
    /// More of the body has come. Says how many tokens have to be computed, once that can be told better.
    fn stream(&mut self, len: usize, end: bool) -> Option<u64> {
        let rest = self.rest.as_mut()?;
        rest.bytes = rest.bytes.saturating_add(len as u64);
        if !end {
            return None;
        }
        let tokens = rest.tokens_read.saturating_mul(rest.bytes) / rest.bytes_read.max(1);
        self.work.prefill_tokens = tokens.saturating_sub(rest.cached_tokens);
        self.rest = None;
        Some(self.work.prefill_tokens)
    }
}
