//! Who has what in flight, as last reported.
//!
//! The sums over all proxies are kept, and a proxy's own part is taken off in its answer: a report or an answer costs as
//! much as it has rows, however many proxies there are.
//!
//! A report is a state that only its proxy can renew. One that is not renewed loses its say by quarters and is forgotten in
//! the end: its proxy is gone, or cut off, and what it had in flight ends without a word.
//!
//! # What an engine says of itself
//!
//! An engine may have work that no proxy reports: sent by another way, or by a proxy of an older release. Its gauges tell of
//! it. A report and a gauge are never of the same moment, so one difference proves nothing:
//!
//! ```text
//! excess   = max(0, running + waiting - requests booked to the worker, or to its endpoint without a rank)
//! unbooked = min(excess now, excess at the look before)                                       [requests]
//! ```
//!
//! What such a request asks of its worker is not known. It counts as one of the booked requests, on average over the pool
//! (32 blocks until there has been one); and as many as wait in the engine have all of that to compute.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use warmroute_routing::choose::Load;
use warmroute_routing::loads::{EngineState, FleetLoad, FleetRow, QUARTERS, WorkerKey, say};

use crate::gauges::Gauges;

/// The least time between two answers to one proxy: what bounds the work, however fast everything changes. Ticks, ways and
/// this together stay under 100 ms from one proxy's change to another's knowing.
const PACE: Duration = Duration::from_millis(30);

/// Blocks of a request of which nothing is known.
const TYPICAL_BLOCKS: u64 = 32;

/// The pause between two looks for engines that are silent.
const FORGET_AFTER: Duration = Duration::from_secs(1);

/// Who changes what the engines say: no proxy has this number.
const ENGINES: u64 = 0;

/// Proxies that are listened to.
const MAX_PROXIES: usize = 1_024;

/// Rows of all their reports: some 50 MiB.
const MAX_ROWS_IN_ALL: usize = 1 << 20;

/// There are more proxies, or they have more to report, than can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more proxies report, or more of each, than can be kept")]
pub struct TooMany;

/// The reports of all proxies of a pool.
#[derive(Debug)]
pub(super) struct Books {
    proxies: HashMap<u64, Proxy>,
    workers: BTreeMap<WorkerKey, Known>,
    /// Over all workers.
    booked: Load,
    /// Blocks of a booked request, on average, when there last was one.
    typical_blocks: u64,
    /// Tokens in a block.
    block_size: u32,
    /// When it was last looked for engines that are silent.
    looked_at: Option<Instant>,
    rows_in_all: usize,
    /// The last change.
    latest: Change,
    /// The last change by another than who made the latest.
    before: u64,
}

/// What is known of a worker.
#[derive(Debug, Default)]
struct Known {
    /// Over all proxies, by as much as each has say.
    booked: Load,
    engine: Option<Engine>,
}

/// What its engine last said.
#[derive(Clone, Copy, Debug)]
struct Engine {
    heard_at: Instant,
    gauges: Gauges,
    excess: u32,
    unbooked: Load,
}

/// A change of the books.
#[derive(Clone, Copy, Debug)]
struct Change {
    by: u64,
    position: u64,
}

#[derive(Debug)]
struct Proxy {
    /// Its report, ascending by worker.
    rows: Vec<(WorkerKey, Load)>,
    heard_at: Instant,
    /// How much of it is in the sums, in quarters.
    say: u32,
    /// How often it has reported.
    turn: u64,
    answered_at: Option<Instant>,
}

/// A report's place among those of its proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) number: u64,
    /// It is not answered sooner.
    pub(super) not_before: Instant,
}

// === impl Books ===

impl Books {
    pub(super) fn new(first_position: u64, block_size: u32) -> Self {
        Self {
            proxies: HashMap::new(),
            workers: BTreeMap::new(),
            booked: Load::default(),
            typical_blocks: TYPICAL_BLOCKS,
            block_size,
            looked_at: None,
            rows_in_all: 0,
            // To who comes with an older position, all is news.
            latest: Change { by: ENGINES, position: first_position },
            before: first_position,
        }
    }

    /// Grows with each change.
    pub(super) fn position(&self) -> u64 {
        self.latest.position
    }

    /// Puts a proxy's report in place of its last.
    pub(super) fn report(
        &mut self,
        proxy: u64,
        mut rows: Vec<(WorkerKey, Load)>,
        now: Instant,
    ) -> Result<Turn, TooMany> {
        self.fade(now);
        let old = self.proxies.get(&proxy);
        let old_rows = old.map_or(0, |old| old.rows.len());
        let rows_in_all = self.rows_in_all.saturating_sub(old_rows).saturating_add(rows.len());
        if rows_in_all > MAX_ROWS_IN_ALL || old.is_none() && self.proxies.len() >= MAX_PROXIES {
            return Err(TooMany);
        }
        rows.sort_unstable_by_key(|(worker, _)| *worker);
        let (turn, answered_at) = old.map_or((1, None), |old| (old.turn + 1, old.answered_at));
        let is_same = old.is_some_and(|old| old.say == QUARTERS && old.rows == rows);
        let new = Proxy { rows, heard_at: now, say: QUARTERS, turn, answered_at };
        self.rows_in_all = rows_in_all;
        if is_same {
            self.proxies.insert(proxy, new);
        } else {
            self.add(&new);
            if let Some(old) = self.proxies.insert(proxy, new) {
                self.subtract(&old);
            }
            self.changed(proxy);
        }
        let not_before = answered_at.map_or(now, |at| (at + PACE).max(now));
        Ok(Turn { number: turn, not_before })
    }

    /// Whether the proxy has reported again since.
    pub(super) fn is_superseded(&self, proxy: u64, turn: u64) -> bool {
        self.proxies.get(&proxy).is_none_or(|proxy| proxy.turn != turn)
    }

    /// Whether anybody but the proxy itself has changed anything since a position.
    pub(super) fn has_news(&self, proxy: u64, since: u64) -> bool {
        let last = if self.latest.by == proxy { self.before } else { self.latest.position };
        last > since || since > self.latest.position
    }

    /// What all others have in flight. None: the proxy has reported again since.
    pub(super) fn answer(&mut self, proxy: u64, turn: u64, now: Instant) -> Option<FleetLoad> {
        self.fade(now);
        if self.is_superseded(proxy, turn) {
            return None;
        }
        let own = self.proxies.get_mut(&proxy)?;
        own.answered_at = Some(now);
        let say = own.say;
        let mut own_rows = own.rows.iter().peekable();
        let rows = self.workers.iter().filter_map(|(worker, known)| {
            while own_rows.next_if(|(own, _)| own < worker).is_some() {}
            let own = own_rows.next_if(|(own, _)| own == worker).map_or(Load::default(), |(_, load)| *load);
            let others = known.booked.minus(own.part(say, QUARTERS));
            let engine = known.engine.map(|engine| engine.state(now));
            (!others.is_none() || engine.is_some()).then_some(FleetRow { worker: *worker, others, engine })
        });
        let rows = rows.collect();
        Some(FleetLoad { position: self.latest.position, rows })
    }

    /// How many proxies are heard.
    pub(super) fn proxies(&mut self, now: Instant) -> usize {
        self.fade(now);
        self.proxies.len()
    }

    /// Takes in what an engine says. How much it has that nobody booked.
    pub(super) fn engine(&mut self, worker: WorkerKey, gauges: Gauges, now: Instant) -> Load {
        self.fade(now);
        let booked = self.booked_to(worker);
        let excess = gauges.running.saturating_add(gauges.waiting).saturating_sub(booked);
        if self.booked.requests > 0 {
            self.typical_blocks = self.booked.blocks / u64::from(self.booked.requests);
        }
        let (blocks, block_size) = (self.typical_blocks, u64::from(self.block_size));
        let known = self.workers.entry(worker).or_default();
        let before = known.engine.filter(|before| before.say(now) > 0);
        let requests = excess.min(before.map_or(0, |before| before.excess));
        let waiting = u64::from(requests.min(gauges.waiting));
        let unbooked = Load {
            requests,
            prefill_tokens: waiting.saturating_mul(blocks).saturating_mul(block_size),
            blocks: u64::from(requests).saturating_mul(blocks),
        };
        known.engine = Some(Engine { heard_at: now, gauges, excess, unbooked });
        if requests != before.map_or(0, |before| before.unbooked.requests) {
            self.changed(ENGINES);
        }
        unbooked
    }

    /// Requests that are booked to a worker, or to its endpoint without a rank; to the whole endpoint, if it has no rank.
    fn booked_to(&self, worker: WorkerKey) -> u32 {
        let first = WorkerKey { rank: None, ..worker };
        let there = self.workers.range(first..).take_while(|(key, _)| key.address == worker.address);
        let counts = there.filter(|(key, _)| worker.rank.is_none() || key.rank.is_none() || **key == worker);
        counts.fold(0, |sum: u32, (_, known)| sum.saturating_add(known.booked.requests))
    }

    /// Takes their say from those that have not been heard for long.
    fn fade(&mut self, now: Instant) {
        self.forget_engines(now);
        let age = |proxy: &Proxy| now.saturating_duration_since(proxy.heard_at);
        let due = self.proxies.iter().filter(|(_, proxy)| say(age(proxy)) != proxy.say);
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        for number in due {
            let Some(mut proxy) = self.proxies.remove(&number) else { continue };
            self.subtract(&proxy);
            proxy.say = say(age(&proxy));
            if proxy.say > 0 {
                self.add(&proxy);
                self.proxies.insert(number, proxy);
            } else {
                self.rows_in_all = self.rows_in_all.saturating_sub(proxy.rows.len());
            }
            self.changed(number);
        }
    }

    /// Forgets engines that are not heard any more. Now and then only: a reader knows how old their word is.
    fn forget_engines(&mut self, now: Instant) {
        if self.looked_at.is_some_and(|at| now.saturating_duration_since(at) < FORGET_AFTER) {
            return;
        }
        self.looked_at = Some(now);
        self.workers.retain(|_, known| {
            known.engine = known.engine.filter(|engine| engine.say(now) > 0);
            known.engine.is_some() || !known.booked.is_none()
        });
    }

    fn add(&mut self, proxy: &Proxy) {
        for (worker, load) in &proxy.rows {
            let load = load.part(proxy.say, QUARTERS);
            let known = self.workers.entry(*worker).or_default();
            known.booked = known.booked.plus(load);
            self.booked = self.booked.plus(load);
        }
    }

    fn subtract(&mut self, proxy: &Proxy) {
        for (worker, load) in &proxy.rows {
            let Some(known) = self.workers.get_mut(worker) else { continue };
            let load = load.part(proxy.say, QUARTERS);
            known.booked = known.booked.minus(load);
            self.booked = self.booked.minus(load);
            if known.booked.is_none() && known.engine.is_none() {
                self.workers.remove(worker);
            }
        }
    }

    fn changed(&mut self, by: u64) {
        if self.latest.by != by {
            self.before = self.latest.position;
        }
        self.latest = Change { by, position: self.latest.position + 1 };
    }
}

// === impl Engine ===

impl Engine {
    fn say(&self, now: Instant) -> u32 {
        say(now.saturating_duration_since(self.heard_at))
    }

    fn state(&self, now: Instant) -> EngineState {
        let age = now.saturating_duration_since(self.heard_at);
        EngineState {
            running: self.gauges.running,
            waiting: self.gauges.waiting,
            kv_permille: self.gauges.kv_permille,
            age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
            unbooked: self.unbooked,
        }
    }
}

#[cfg(test)]
mod tests;
