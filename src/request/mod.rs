//! One request's way through the filter.
//!
//! ```text
//! headers --> left alone (not ours to read)
//!         --> decided (prompt in a header, or nothing to wait for)
//!         --> Reading --body--> decided (the prompt is known, cannot be, or the held bytes are at their limit)
//! decided --> destination header set, or not --> response: load booked to who really served --> done: released
//! ```
//!
//! A request waits only while its prompt may still come, and whatever happens it goes on: to the workers that were
//! decided, or to the proxy's own choice.

mod body;
mod headers;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use crate::config::{FilterConfig, Mode};
use crate::decision::{Bounds, Decision, PromptSource, Reason, decide};
use crate::host::{Host, RequestHost};
use crate::index::IndexReader;
use crate::ledger::{Booking, Ledger};
use crate::metrics::RequestMetrics;
use body::BodyReader;
use headers::Intake;

/// What all requests of one VM share.
#[derive(Debug)]
pub struct Filter {
    config: FilterConfig,
    pools: Vec<PoolState>,
    /// For requests of no pool.
    no_pool: RequestMetrics,
    ledger: Ledger,
    /// Spreads ties: a number that differs from request to request.
    tie: u64,
}

#[derive(Debug)]
struct PoolState {
    index: IndexReader,
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
    Reading(Box<BodyReader>),
    /// A decision fell; the request counts for the load of who serves it.
    Decided(Served),
}

/// What to book once it is known who serves.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    /// Whom the filter named first.
    named: Option<SocketAddr>,
    /// Tokens that the one who was named has to compute.
    uncached_tokens: u64,
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
        let pool = |name: &str| PoolState {
            index: IndexReader::new(name),
            metrics: RequestMetrics::define(host, name),
        };
        Self {
            pools: config.pools.iter().map(|configured| pool(&configured.name)).collect(),
            no_pool: RequestMetrics::define(host, "none"),
            config,
            ledger: Ledger::default(),
            tie: seed,
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

    /// Whether a body of the pool is worth waiting for.
    fn ready(&mut self, host: &impl Host, pool: usize) -> Result<(), Reason> {
        let max_age_us = self.bounds().max_index_age_us;
        let state = self.pools.get_mut(pool).ok_or(Reason::NoPool)?;
        state.index.ready(host, &mut self.ledger, host.now_us(), max_age_us)
    }

    fn decide(&mut self, host: &impl Host, pool: usize, prompt: &PromptSource, now_us: u64) -> Decision {
        let bounds = self.bounds();
        self.tie = self.tie.wrapping_add(1);
        let Some(state) = self.pools.get_mut(pool) else { return Decision::fallback(Reason::NoPool) };
        decide(host, &mut state.index, &mut self.ledger, prompt, bounds, now_us, self.tie)
    }

    fn metrics(&self, pool: Option<usize>) -> &RequestMetrics {
        pool.and_then(|pool| self.pools.get(pool)).map_or(&self.no_pool, |state| &state.metrics)
    }

    fn steers(&self) -> bool {
        self.config.mode == Mode::Steer
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
        let Some(pool) = self.pool else { return self.fall_back(host, filter, Reason::NoPool) };
        match intake {
            Intake::NotOurs => Flow::Continue,
            Intake::Refused(reason) => self.fall_back(host, filter, reason),
            Intake::Prompt(prompt) => self.decide(host, filter, pool, &prompt),
            Intake::Body => match filter.ready(host, pool) {
                Ok(()) => {
                    self.state = State::Reading(Box::new(BodyReader::new(filter.config.max_held_bytes)));
                    Flow::Hold
                }
                Err(reason) => self.fall_back(host, filter, reason),
            },
        }
    }

    /// `held` bytes of the request's body are there, all of it so far; `end`: it is complete.
    pub fn request_body(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        held: usize,
        end: bool,
    ) -> Flow {
        let State::Reading(reader) = &mut self.state else { return Flow::Continue };
        match reader.read(host, held, end) {
            None => Flow::Hold,
            Some(outcome) => self.conclude(host, filter, outcome),
        }
    }

    /// The request's trailers are there: its body was complete before, without having been said to be.
    pub fn request_trailers(&mut self, host: &impl RequestHost, filter: &mut Filter) -> Flow {
        let State::Reading(reader) = &mut self.state else { return Flow::Continue };
        let outcome = reader.finish();
        self.conclude(host, filter, outcome)
    }

    fn conclude(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        outcome: Result<PromptSource, Reason>,
    ) -> Flow {
        match (outcome, self.pool) {
            (Ok(prompt), Some(pool)) => self.decide(host, filter, pool, &prompt),
            (Ok(_), None) => self.fall_back(host, filter, Reason::NoPool),
            (Err(reason), _) => self.fall_back(host, filter, reason),
        }
    }

    fn decide(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        pool: usize,
        prompt: &PromptSource,
    ) -> Flow {
        let start_us = host.now_us();
        let decision = filter.decide(host, pool, prompt, start_us);
        self.carry_out(host, filter, &decision, host.now_us().saturating_sub(start_us))
    }

    fn fall_back(&mut self, host: &impl RequestHost, filter: &mut Filter, reason: Reason) -> Flow {
        self.carry_out(host, filter, &Decision::fallback(reason), 0)
    }

    fn carry_out(
        &mut self,
        host: &impl RequestHost,
        filter: &mut Filter,
        decision: &Decision,
        decision_us: u64,
    ) -> Flow {
        let steers = filter.steers();
        let mut served = Served::default();
        if let Decision::Route(route) = decision
            && steers
        {
            host.set_request_header(
                &filter.config.destination_header,
                &headers::destination_list(&route.destinations),
            );
            served =
                Served { named: route.destinations.first().copied(), uncached_tokens: route.uncached_tokens };
            // Booked at once, so that the next request sees it; corrected when it is known who really served.
            self.booking = served.named.map(|address| {
                let place = filter.ledger.place(address);
                filter.ledger.book(place, served.uncached_tokens)
            });
        }
        filter.metrics(self.pool).count(host, decision, steers, decision_us);
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
        if address == served.named && self.booking.is_some() {
            return;
        }
        self.release(filter);
        if let Some(address) = address {
            let place = filter.ledger.place(address);
            self.booking = Some(filter.ledger.book(place, served.uncached_tokens));
        }
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
