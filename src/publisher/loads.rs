//! The exchange of load with the collector: what this proxy has in flight, against what all others have.
//!
//! One report is always open at the collector, which answers when the others' load has changed. A new one takes its place
//! when this proxy's own has. A collector that does not know the exchange, or does not answer, costs nothing but that
//! each proxy weighs its own load alone; it is asked again, seldom.

use std::collections::BTreeMap;

use warmroute_routing::choose::Load;
use warmroute_routing::loads::{FleetLoad, LoadReport, MAX_ROWS, WorkerKey, path};

use super::gauges::LoadGauges;
use crate::config::PublisherConfig;
use crate::host::{Call, CallAnswer, CallHost, CallId, Host, Level, WriteIf};
use crate::shared::{HeardFleet, LOAD_KEY, LoadBook, PoolKeys, proxy_number};

/// How long the collector may hold an answer, in milliseconds. It is heard this often, so that what it told stays fresh.
const WAIT_MS: u32 = 1_000;

/// How long the exchange may take beyond that, in milliseconds.
const MARGIN_MS: u64 = 2_000;

/// An answer that comes sooner than this was not waited for, in microseconds: the next report is the next tick's.
const LEAST_WAIT_US: u64 = 10_000;

/// The pause after a failure, in microseconds.
const PAUSE_US: u64 = 1_000_000;

/// The pause after the collector has said that it does not know the exchange, in microseconds.
const LONG_PAUSE_US: u64 = 10_000_000;

/// One pool's exchange.
#[derive(Debug)]
pub(super) struct LoadExchange {
    pool: String,
    /// A random number, for a proxy that has none yet.
    random: u64,
    fleet_key: String,
    gauges: LoadGauges,
    /// What this proxy has in flight, by worker, and the write of shared data that it was read from.
    own: BTreeMap<WorkerKey, Load>,
    own_of: Option<u32>,
    /// When the books were last summed, in microseconds: rows of dead VMs end without a write.
    summed_at_us: u64,
    /// The position of the last answer.
    position: u64,
    state: State,
    /// Whether it was told that there is no exchange.
    told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To report at this time, in microseconds.
    Due(u64),
    /// Reported, at a time in microseconds.
    Open(CallId, u64),
}

// === impl LoadExchange ===

impl LoadExchange {
    pub(super) fn new(pool: &str, random: u64) -> Self {
        Self {
            pool: pool.to_owned(),
            random,
            fleet_key: PoolKeys::new(pool).fleet().to_owned(),
            gauges: LoadGauges::new(pool),
            own: BTreeMap::new(),
            own_of: None,
            summed_at_us: 0,
            position: 0,
            state: State::Due(0),
            told: false,
        }
    }

    /// Somebody else publishes: what is open is nobody's.
    pub(super) fn stand_by(&mut self) {
        self.state = State::Due(0);
        self.position = 0;
        self.own_of = None;
    }

    /// Reports, if that is due or this proxy's load has changed.
    pub(super) fn tick(&mut self, host: &impl CallHost, config: &PublisherConfig) {
        let now_us = host.now_us();
        let changed = self.sum_up(host, now_us);
        match self.state {
            State::Due(at_us) if at_us <= now_us => self.report(host, config),
            State::Open(..) if changed => self.report(host, config),
            State::Open(_, at_us)
                if now_us.saturating_sub(at_us) > (u64::from(WAIT_MS) + 2 * MARGIN_MS) * 1000 =>
            {
                self.state = State::Due(now_us);
            }
            State::Due(_) | State::Open(..) => {}
        }
    }

    /// Takes in the answer to a call, if it is the open report's.
    pub(super) fn answered(
        &mut self,
        host: &impl CallHost,
        config: &PublisherConfig,
        call: CallId,
        answer: &CallAnswer,
    ) {
        let State::Open(open, at_us) = self.state else { return };
        if open != call {
            return;
        }
        let now_us = host.now_us();
        match answer.status {
            Some(200) => match FleetLoad::decode(&answer.body) {
                Ok(fleet) => self.take_in(host, now_us, &fleet, &answer.body),
                Err(error) => return self.fail(host, PAUSE_US, &error.to_string()),
            },
            // Another report has taken its place: of a proxy that has come by the same number, if not of this one.
            Some(204) => {}
            Some(404 | 405) => {
                return self.fail(
                    host,
                    LONG_PAUSE_US,
                    "it does not know the exchange of load, or not the pool",
                );
            }
            Some(status) => return self.fail(host, PAUSE_US, &format!("it answered with status {status}")),
            None => return self.fail(host, PAUSE_US, "the call failed"),
        }
        self.told = false;
        if now_us.saturating_sub(at_us) < LEAST_WAIT_US || answer.status == Some(204) {
            self.state = State::Due(now_us);
        } else {
            self.sum_up(host, now_us);
            self.report(host, config);
        }
    }

    fn take_in(&mut self, host: &impl Host, now_us: u64, fleet: &FleetLoad, bytes: &[u8]) {
        self.position = fleet.position;
        let value = HeardFleet { heard_at_us: now_us, answer: bytes }.encode();
        let condition =
            host.shared(&self.fleet_key).map_or(WriteIf::Absent, |value| WriteIf::Unchanged(value.cas));
        // Whoever writes meanwhile has as fresh an answer.
        let _ = host.set_shared(&self.fleet_key, &value, condition);
        self.gauges.tell_others(host, &fleet.rows);
    }

    /// Sums what this proxy's VMs have in flight. Whether that has changed.
    fn sum_up(&mut self, host: &impl Host, now_us: u64) -> bool {
        let value = host.shared(LOAD_KEY);
        let write = value.as_ref().map(|value| value.cas);
        if write == self.own_of && now_us.saturating_sub(self.summed_at_us) < PAUSE_US {
            return false;
        }
        (self.own_of, self.summed_at_us) = (write, now_us);
        let book = value.map(|value| LoadBook::decode(&value.bytes)).unwrap_or_default();
        let mut own = BTreeMap::<_, Load>::new();
        for (worker, load) in book.all(now_us) {
            let sum = own.entry(*worker).or_default();
            *sum = sum.plus(*load);
        }
        if own == self.own {
            return false;
        }
        self.own = own;
        self.gauges.tell_own(host, &self.own);
        true
    }

    fn report(&mut self, host: &impl CallHost, config: &PublisherConfig) {
        let now_us = host.now_us();
        let Some(proxy) = proxy_number(host, self.random) else {
            self.fail(host, PAUSE_US, "shared data could not be written");
            return;
        };
        let rows = self.own.iter().take(MAX_ROWS).map(|(worker, load)| (*worker, *load)).collect();
        let report = LoadReport { proxy, position: self.position, wait_ms: WAIT_MS, rows };
        let call = Call {
            cluster: &config.cluster,
            authority: &config.authority,
            path: &path(&self.pool),
            accept: None,
            timeout_ms: u64::from(WAIT_MS) + MARGIN_MS,
        };
        match host.post(&call, &report.encode()) {
            Some(id) => self.state = State::Open(id, now_us),
            None => {
                self.fail(host, PAUSE_US, "its cluster is not known to this proxy");
            }
        }
    }

    /// That there is no exchange is told once, not at every attempt.
    fn fail(&mut self, host: &impl Host, pause_us: u64, why: &str) {
        let level = if std::mem::replace(&mut self.told, true) { Level::Debug } else { Level::Info };
        host.log(level, &format!("pool {}: no load of other proxies from the collector: {why}", self.pool));
        self.state = State::Due(host.now_us().saturating_add(pause_us));
    }
}

#[cfg(test)]
#[path = "loads/tests.rs"]
mod tests;
