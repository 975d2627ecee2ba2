//! What all requests of one VM share: the configuration, the indexes, the books.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use warmroute_routing::choose::{Load, Rule};
use warmroute_routing::hash::SequenceHash;

use super::question::Tokenizer;
use super::served::Sent;
use super::{Exchange, Questions, Waiting};
use crate::config::{FilterConfig, Mode, Pool};
use crate::decision::{Asked, Bounds, Decision, Inquiry, Reason, Surroundings};
use crate::failures::Failures;
use crate::fleet::Fleet;
use crate::host::{Host, Level, Phase, RequestHost};
use crate::index::{IndexReader, PoolView};
use crate::ledger::Ledger;
use crate::metrics::RequestMetrics;
use crate::recent::RecentRoutes;
use crate::sessions::Sessions;
use crate::shared::RouteHead;
use crate::trust::{Change, Prediction, Trust};
use crate::wishes::Wishes;

/// How often it is told how old the indexes are, in microseconds.
const BETWEEN_AGES_US: u64 = 1_000_000;

/// What all requests of one VM share.
#[derive(Debug)]
pub struct Filter {
    pub(super) config: FilterConfig,
    pools: Vec<PoolState>,
    /// For requests of no pool.
    no_pool: RequestMetrics,
    pub(super) ledger: Ledger,
    failures: Failures,
    trust: Trust,
    /// Steered requests, to compare one of so many.
    steered: u32,
    /// The requests that wait for a body which may never be shown.
    pub waiting: Waiting<Weak<RefCell<Exchange>>>,
    /// The requests that wait for the collector's answer, each with the number of its stream.
    pub questions: Questions<(u32, Weak<RefCell<Exchange>>)>,
    /// Spreads ties: a number that differs from request to request.
    tie: u64,
    /// When it was last told how old the indexes are, in microseconds.
    age_told_at_us: u64,
}

#[derive(Debug)]
struct PoolState {
    index: IndexReader,
    /// What was just routed, where that counts.
    recent: Option<RecentRoutes>,
    sessions: Sessions,
    /// What other proxies have in flight.
    fleet: Fleet,
    rule: Rule,
    /// Where its text prompts are tokenized, if they are.
    tokenizer: Option<Tokenizer>,
    metrics: RequestMetrics,
}

// === impl Filter ===

impl Filter {
    /// A filter by its configuration. `seed` is a random number.
    pub fn new(config: FilterConfig, host: &impl Host, seed: u64) -> Self {
        let recent_us = config.recent_routes_ms.saturating_mul(1000);
        let recent = |pool: &str| (recent_us > 0).then(|| RecentRoutes::new(pool, recent_us));
        let session_ttl_us = config.session_ttl_ms.saturating_mul(1000);
        let pool = |pool: &Pool| PoolState {
            index: IndexReader::new(&pool.name),
            recent: recent(&pool.name),
            sessions: Sessions::new(&pool.name, session_ttl_us),
            fleet: Fleet::new(&pool.name),
            rule: pool.policy,
            tokenizer: pool.prompts.as_ref().map(|prompts| Tokenizer::new(&pool.name, prompts)),
            metrics: RequestMetrics::define(host, &pool.name, pool.prompts.is_some()),
        };
        Self {
            pools: config.pools.iter().map(pool).collect(),
            no_pool: RequestMetrics::define_without_pool(host),
            config,
            ledger: Ledger::new(seed),
            failures: Failures::default(),
            trust: Trust::default(),
            steered: 0,
            waiting: Waiting::default(),
            questions: Questions::default(),
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

    pub(super) fn pool_of(&self, host: &impl RequestHost) -> Option<usize> {
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
    pub(super) fn ready(&mut self, host: &impl Host, pool: usize) -> Result<Rc<PoolView>, Reason> {
        let max_age_us = self.bounds().max_index_age_us;
        let state = self.pools.get_mut(pool).ok_or(Reason::NoPool)?;
        state.index.ready(host, &mut self.ledger, host.now_us(), max_age_us)
    }

    /// Where a pool's text prompts are tokenized, if they are.
    pub(super) fn tokenizer(&self, pool: usize) -> Option<&Tokenizer> {
        self.pools.get(pool)?.tokenizer.as_ref()
    }

    pub(super) fn inquiry(&mut self, wishes: Wishes) -> Inquiry {
        self.tie = self.tie.wrapping_add(1);
        Inquiry::new(self.tie, wishes)
    }

    pub(super) fn advance(
        &mut self,
        host: &impl Host,
        pool: usize,
        inquiry: &mut Inquiry,
        asked: &Asked<'_>,
        now_us: u64,
    ) -> Option<Decision> {
        let (bounds, steers) = (self.bounds(), self.steers());
        let Some(state) = self.pools.get_mut(pool) else { return Some(Decision::fallback(Reason::NoPool)) };
        let (index, ledger, failures) = (&mut state.index, &mut self.ledger, &self.failures);
        host.begins(Phase::Snapshot);
        ledger.read_others(host, now_us);
        state.fleet.read(host, ledger, now_us);
        let (fleet, rule, recent) = (&state.fleet, &state.rule, state.recent.as_mut());
        let (sessions, trust) = (&mut state.sessions, &self.trust);
        let mut around = Surroundings {
            host,
            index,
            ledger,
            fleet,
            failures,
            recent,
            sessions,
            trust,
            rule,
            bounds,
            now_us,
        };
        let decision = inquiry.advance(&mut around, asked);
        let Some(Decision::Route(route)) = decision.as_ref().filter(|_| steers) else { return decision };
        if let (Some(session), Some(worker)) = (inquiry.session(), route.destinations.first()) {
            state.sessions.bind(host, session, *worker, now_us);
        }
        if let (Some(recent), Some(generation)) = (&mut state.recent, inquiry.generation()) {
            let head = RouteHead {
                routed_at_us: now_us,
                slot: route.slot,
                open: !asked.whole,
                base: route.published_blocks,
                end: u32::try_from(asked.hashes.len()).unwrap_or(u32::MAX),
            };
            recent.record(host, generation, head, asked.hashes);
        }
        decision
    }

    /// The rest of a prompt is there that was routed before: now it is known whole what its worker was sent.
    pub(super) fn remember(&mut self, host: &impl Host, pool: usize, sent: &Sent, hashes: &[SequenceHash]) {
        let recent = self.pools.get_mut(pool).and_then(|state| state.recent.as_mut());
        let Some(recent) = recent.filter(|_| self.config.mode == Mode::Steer) else { return };
        let head = RouteHead {
            routed_at_us: host.now_us(),
            slot: sent.slot,
            open: false,
            base: sent.base,
            end: u32::try_from(hashes.len()).unwrap_or(u32::MAX),
        };
        recent.record_later(host, sent.generation, head, hashes);
    }

    /// Remembers whether the worker that was named has served. Another that did, or a 503, says that it has not.
    pub(super) fn learn(&mut self, host: &impl RequestHost, named: SocketAddr, served: Option<SocketAddr>) {
        let unavailable = || host.response_header(":status").is_some_and(|status| status == b"503");
        // An answer of the proxy's own, which asked nobody, says nothing about the worker.
        let Some(served) = served else { return };
        if served == named && !unavailable() {
            self.failures.served(named);
        } else {
            self.failures.failed(named, host.now_us());
        }
    }

    /// Whether the answer to a request that was sent to this worker is read. One that has disproved the index is looked at
    /// each time.
    pub(super) fn compares(&mut self, worker: SocketAddr) -> bool {
        let every = self.config.compare_every;
        self.steered = self.steered.wrapping_add(1);
        every > 0 && (self.steered.is_multiple_of(every) || self.trust.is_suspect(worker))
    }

    /// An engine has said how much it had cached.
    pub(super) fn compared(
        &mut self,
        host: &impl Host,
        pool: Option<usize>,
        worker: SocketAddr,
        prediction: Prediction,
        actual_blocks: u64,
    ) {
        let verdict = prediction.compare(actual_blocks);
        self.metrics(pool).compared(host, verdict);
        match self.trust.learn(worker, prediction, verdict, host.now_us()) {
            Some(Change::Lost) => host.log(
                Level::Warn,
                &format!("worker {worker} keeps having less cached than the index says: it counts as empty for a while"),
            ),
            Some(Change::Regained) => {
                host.log(Level::Info, &format!("worker {worker} has what the index says again"));
            }
            None => {}
        }
    }

    pub(super) fn metrics(&self, pool: Option<usize>) -> &RequestMetrics {
        pool.and_then(|pool| self.pools.get(pool)).map_or(&self.no_pool, |state| &state.metrics)
    }

    pub(super) fn steers(&self) -> bool {
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

    /// What the endpoint at an address has in hand of this proxy's requests, for tests and reports.
    pub fn load(&self, address: SocketAddr) -> Load {
        self.ledger.endpoint(address)
    }
}
