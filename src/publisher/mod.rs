//! The publisher: fetches the index from the collector and writes it into the proxy's shared data.
//!
//! One of all that could publish a pool does, by its [lease](crate::shared::Claim). It asks the collector's feed, stores
//! what it answers, and asks again; the collector holds the answer back until there is something to tell. Nothing is kept
//! in the publisher that could not be read back from shared data, but for a full copy that is not complete: a successor
//! starts that anew, and goes on from the published position otherwise.
//!
//! ```text
//! on_tick: hold the lease? --no--> stand by
//!                          --yes--> empty some old pages; ask, if it is time
//! answer:  write pages --> write the published pool, last --> ask again
//! ```

mod gauges;
mod loads;
mod store;
#[cfg(test)]
mod tests;

use warmroute_routing::feed::{Answer, Cursor, Request};

use crate::config::PublisherConfig;
use crate::host::{Call, CallAnswer, CallHost, CallId, Host, Level};
use crate::metrics::{PublisherMetrics, add};
use crate::shared::{Claim, Seniority};
use loads::LoadExchange;
use store::{Store, StoreError};

/// How long a callout may take beyond the long poll, in milliseconds: the collector's own time, and the way.
const CALL_MARGIN_MS: u64 = 5_000;

/// The first pause after a failure, in microseconds. It doubles with each further one.
const FIRST_PAUSE_US: u64 = 100_000;

/// An answer without news that comes sooner than this was not waited for, in microseconds.
const LEAST_WAIT_US: u64 = 50_000;

/// A generation that takes another's place sooner than this after the last did is one of several collectors', not a
/// restarted one's, in microseconds.
const GENERATION_LASTS_US: u64 = 1_000_000;

/// The longest pause after failures, in microseconds: a collector that is back is found this late.
const LONGEST_PAUSE_US: u64 = 2_000_000;

/// Publishes one pool.
#[derive(Debug)]
pub struct Publisher {
    pool: String,
    config: PublisherConfig,
    claim: Claim,
    metrics: PublisherMetrics,
    store: Store,
    loads: LoadExchange,
    state: State,
    /// Failures in a row.
    failures: u32,
    /// When the collector was last asked, in microseconds.
    asked_at_us: u64,
    /// When the feed's generation last changed, in microseconds.
    generation_since_us: u64,
    /// Whether it was told that there seem to be several collectors.
    told_of_several: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Somebody else publishes.
    StandBy,
    /// To ask at this time, in microseconds.
    Due(u64),
    /// Asked; given up at this time, in microseconds.
    Asked(CallId, u64),
}

// === impl Publisher ===

impl Publisher {
    /// A publisher of the pool of this name. `owner` is a random number.
    pub fn new(pool: &str, config: &PublisherConfig, singleton: bool, owner: u64, host: &impl Host) -> Self {
        let seniority = Seniority { singleton, configured_at_us: host.now_us() };
        Self {
            claim: Claim { owner, seniority, lease_us: config.lease_ms.saturating_mul(1000) },
            metrics: PublisherMetrics::define(host, pool),
            store: Store::new(pool),
            loads: LoadExchange::new(pool, owner),
            pool: pool.to_owned(),
            config: config.clone(),
            state: State::StandBy,
            failures: 0,
            asked_at_us: 0,
            generation_since_us: 0,
            told_of_several: false,
        }
    }

    /// Renews or seeks the lease, and asks the collector if it is time.
    pub fn tick(&mut self, host: &impl CallHost) {
        let now_us = host.now_us();
        let Some(lease) = self.claim.hold(host, self.store.lease_key(), now_us) else {
            self.stand_by(host);
            return;
        };
        self.store.lease_ends_at_us = lease.ends_at_us;
        match self.state {
            State::StandBy => self.take_over(host),
            State::Due(at_us) if at_us <= now_us => self.ask(host),
            State::Asked(_, until_us) if until_us <= now_us => self.fail(host, "no answer came"),
            State::Due(_) | State::Asked(..) => {}
        }
        self.store.tidy(host);
        self.loads.tick(host, &self.config);
    }

    /// Takes in the answer to a call, if it is one of this publisher's.
    pub fn answered(&mut self, host: &impl CallHost, call: CallId, answer: &CallAnswer) {
        match self.state {
            State::Asked(asked, _) if asked == call => {}
            _ => {
                self.loads.answered(host, &self.config, call, answer);
                return;
            }
        }
        match answer.status {
            Some(200) => self.take_in(host, &answer.body),
            Some(status) => self.fail(host, &format!("it answered with status {status}")),
            None => self.fail(host, "the call failed"),
        }
    }

    fn stand_by(&mut self, host: &impl Host) {
        if self.state != State::StandBy {
            host.log(Level::Info, &format!("pool {}: another publisher has taken over", self.pool));
            self.state = State::StandBy;
        }
        self.loads.stand_by();
    }

    fn take_over(&mut self, host: &impl CallHost) {
        host.log(Level::Info, &format!("pool {}: publishing in this proxy now", self.pool));
        self.failures = 0;
        self.store.resume(host);
        self.ask(host);
    }

    fn ask(&mut self, host: &impl CallHost) {
        self.asked_at_us = host.now_us();
        let timeout_ms = self.config.long_poll_ms + CALL_MARGIN_MS;
        let request = Request {
            cursor: self.store.cursor,
            wait_ms: u32::try_from(self.config.long_poll_ms).unwrap_or(u32::MAX),
            max_bytes: u32::try_from(self.config.max_answer_bytes).unwrap_or(u32::MAX),
        };
        let call = Call {
            cluster: &self.config.cluster,
            authority: &self.config.authority,
            path: &request.path(&self.pool),
            accept: None,
            timeout_ms,
        };
        match host.get(&call) {
            // The host answers when its time is over; that it never does is not relied upon.
            Some(id) => {
                self.state = State::Asked(id, self.asked_at_us + (timeout_ms + CALL_MARGIN_MS) * 1000);
            }
            None => self.fail(host, &format!("cluster {} is not known to this proxy", self.config.cluster)),
        }
    }

    fn take_in(&mut self, host: &impl CallHost, body: &[u8]) {
        // The lease may have gone while the answer was on its way.
        if !self.claim.holds(host, self.store.lease_key(), host.now_us()) {
            self.stand_by(host);
            return;
        }
        let answer = match Answer::decode(body) {
            Ok(answer) => answer,
            Err(error) => return self.fail(host, &error.to_string()),
        };
        let asked = self.store.cursor;
        match self.store.take_in(host, &answer) {
            Ok(stored) => {
                self.failures = 0;
                add(host, self.metrics.answers, 1);
                add(host, self.metrics.pages, stored.pages);
                add(host, self.metrics.copies, u64::from(stored.completed_copy));
                if stored.completed_copy {
                    host.log(
                        Level::Info,
                        &format!("pool {}: a full copy of the index is published", self.pool),
                    );
                }
                self.go_on(host, asked);
            }
            Err(StoreError::LeaseOver) => self.stand_by(host),
            Err(StoreError::NotWritten) => self.fail(host, "shared data could not be written"),
            Err(StoreError::PositionWentBack) => self.fail(host, "the feed's position went back"),
        }
    }

    /// Asks for what comes next: at once where the answer brought something, else no sooner than the next tick. A server
    /// that answers without waiting, or several that answer in turn, must not keep this thread busy.
    fn go_on(&mut self, host: &impl CallHost, asked: Cursor) {
        let now_us = host.now_us();
        if self.store.cursor == asked && now_us.saturating_sub(self.asked_at_us) < LEAST_WAIT_US {
            self.state = State::Due(now_us);
            return;
        }
        let changed = asked != Cursor::START && self.store.cursor.generation != asked.generation;
        if !changed {
            return self.ask(host);
        }
        let lasted_us = now_us.saturating_sub(std::mem::replace(&mut self.generation_since_us, now_us));
        if lasted_us >= GENERATION_LASTS_US {
            return self.ask(host);
        }
        if !std::mem::replace(&mut self.told_of_several, true) {
            let several = "the index's generation changes again and again: does its cluster lead to several collectors?";
            host.log(Level::Warn, &format!("pool {}: {several}", self.pool));
        }
        self.state = State::Due(now_us.saturating_add(GENERATION_LASTS_US));
    }

    fn fail(&mut self, host: &impl Host, why: &str) {
        // A collector that is down is told of once, not at every attempt.
        let level = if self.failures == 0 { Level::Warn } else { Level::Debug };
        host.log(level, &format!("pool {}: no index from the collector: {why}", self.pool));
        add(host, self.metrics.failures, 1);
        let pause_us = FIRST_PAUSE_US.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE_US);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Due(host.now_us().saturating_add(pause_us));
    }
}
