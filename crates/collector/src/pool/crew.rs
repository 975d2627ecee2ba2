//! Who works for a pool: the subscribers of its workers, started and stopped as the configuration says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use warmroute_wire::Engine;
use warmroute_wire::sequence::Applied;

use crate::config::{EventSource, Events, PoolConfig, Publisher, WorkerConfig};
use crate::engine::{Doors, Poller, SILENCE, Source, Stream, Subscriber, Update};
use crate::fleet::Fleet;
use crate::gauges::Scraper;
use crate::health::Checker;
use crate::metrics::{Metrics, WorkerMetrics};
use crate::snapshot::{Saved, SavedWorker};

/// Engines of a pool that are asked for their gauges at once: pages of some hundred KiB, each read whole.
const SCRAPES_AT_ONCE: usize = 32;

/// Everything that runs. Clones are the same tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<Mutex<JoinSet<()>>>);

/// A rank of a worker that comes to a pool.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    pub(super) place: u64,
    pub(super) address: SocketAddr,
    pub(super) rank: u16,
    pub(super) metrics: WorkerMetrics,
    /// Tokens in a block, as the engine says where it has been asked.
    pub(super) block_size: Option<u32>,
    /// What a snapshot says of it.
    pub(super) saved: Option<SavedWorker>,
}

/// The workers of a pool, and what runs for each.
#[derive(Debug)]
pub(super) struct Crew {
    pool: String,
    engine: Engine,
    block_size: u32,
    replay_timeout: Duration,
    health_interval: Option<Duration>,
    gauges_interval: Option<Duration>,
    fleet: Fleet,
    /// Scrapers that may ask at once.
    scrapes: Arc<Semaphore>,
    doors: Doors,
    updates: mpsc::Sender<Update>,
    tasks: Tasks,
    metrics: Arc<Metrics>,
    next_place: u64,
    members: HashMap<SocketAddr, Member>,
    /// Nobody works here any more, and nobody begins.
    stopped: bool,
    saved: Saved,
}

/// A worker, and what runs for it.
#[derive(Debug)]
struct Member {
    config: WorkerConfig,
    joining: Vec<Joining>,
    running: Vec<AbortHandle>,
}

/// What changed in a configuration.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// The places of those that leave.
    pub(super) leaving: Vec<u64>,
    /// Those that come.
    pub(super) joining: Vec<Joining>,
    /// Workers that are to be started, with the last batch that a snapshot knows of each rank.
    coming: Vec<(SocketAddr, Vec<Option<Applied>>)>,
}

/// Those who stay with the crew: what a snapshot says goes to the owner, and must not be kept here.
fn without_saved(joining: &[Joining]) -> Vec<Joining> {
    joining.iter().map(|rank| Joining { saved: None, ..rank.clone() }).collect()
}

// === impl Tasks ===

impl Tasks {
    /// Runs a task until it ends or everything does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    /// Ends everything.
    pub async fn shutdown(self) {
        let mut tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
    }
}

// === impl Member ===

impl Member {
    /// Stops listening to it. Its gauges go before those of one that may come in its place.
    fn stop(&self) {
        self.running.iter().for_each(AbortHandle::abort);
        self.joining.iter().for_each(|rank| rank.metrics.leave());
    }
}

// === impl Crew ===

impl Crew {
    pub(super) fn new(
        config: &PoolConfig,
        updates: mpsc::Sender<Update>,
        fleet: Fleet,
        tasks: Tasks,
        metrics: Arc<Metrics>,
        saved: Saved,
    ) -> Self {
        Self {
            pool: config.name.clone(),
            engine: config.engine,
            block_size: config.block_size,
            replay_timeout: config.replay_timeout,
            health_interval: config.health_interval,
            gauges_interval: config.gauges_interval,
            fleet,
            scrapes: Arc::new(Semaphore::new(SCRAPES_AT_ONCE)),
            doors: Doors::default(),
            updates,
            tasks,
            metrics,
            next_place: 0,
            members: HashMap::new(),
            stopped: false,
            saved,
        }
    }

    /// Takes over a configuration's workers. Those that are gone, or are written otherwise now, are stopped at once; those
    /// that come are started by [`Crew::start`].
    pub(super) fn change(&mut self, workers: &[WorkerConfig]) -> Change {
        let mut change = Change::default();
        if self.stopped {
            return change;
        }
        let stays = |member: &Member| workers.contains(&member.config);
        for member in self.members.extract_if(|_, member| !stays(member)).map(|(_, member)| member) {
            member.stop();
            change.leaving.extend(member.joining.iter().map(|rank| rank.place));
        }
        for worker in workers {
            if self.members.contains_key(&worker.address) {
                continue;
            }
            let joining: Vec<_> = (0..worker.ranks()).map(|rank| self.joining(worker, rank)).collect();
            let lasts = joining.iter().map(|rank| rank.saved.as_ref().map(|saved| saved.last)).collect();
            let member =
                Member { config: worker.clone(), joining: without_saved(&joining), running: Vec::new() };
            change.joining.extend(joining);
            change.coming.push((worker.address, lasts));
            self.members.insert(worker.address, member);
        }
        change
    }

    fn joining(&mut self, worker: &WorkerConfig, rank: u16) -> Joining {
        let place = self.next_place;
        self.next_place += 1;
        let metrics = self.metrics.worker(&self.pool, &worker.address.to_string(), rank);
        // A worker of which it is still to be found out where it publishes comes again.
        let saved = worker.source.as_ref().and_then(|_| self.saved.take(worker.address, rank));
        Joining { place, address: worker.address, rank, metrics, block_size: worker.block_size, saved }
    }

    /// Starts the workers that have come, once the pool knows them.
    pub(super) fn start(&mut self, change: &Change) {
        for (address, lasts) in &change.coming {
            let Some(mut member) = self.members.remove(address) else { continue };
            member.running = self.run(&member, lasts);
            self.members.insert(*address, member);
        }
    }

    fn run(&self, member: &Member, lasts: &[Option<Applied>]) -> Vec<AbortHandle> {
        let Member { config, joining, .. } = member;
        let mut running = Vec::new();
        match &config.source {
            Some(EventSource::Published(publishers)) => {
                let ranks = publishers.iter().zip(joining).zip(lasts);
                running.extend(ranks.map(|((publisher, rank), last)| self.subscribe(publisher, rank, *last)));
            }
            Some(EventSource::Polled { url, .. }) => {
                let name = format!("{}/{}", self.pool, config.address);
                let ranks = joining.iter().map(|rank| (rank.place, rank.metrics.clone()));
                let poller = Poller::new(url.clone(), name, ranks, self.block_size, self.updates.clone());
                running.push(self.tasks.spawn(poller.run()));
            }
            None => {}
        }
        if let Some(interval) = self.health_interval {
            let ranks = joining.iter().map(|rank| (rank.place, rank.metrics.clone())).collect();
            let updates = self.updates.clone();
            let checker = Checker { address: config.address, interval, ranks, updates };
            running.push(self.tasks.spawn(checker.run()));
        }
        if let Some(interval) = self.gauges_interval {
            let scraper = Scraper {
                address: config.address,
                engine: self.engine,
                interval,
                ranks: joining.iter().map(|rank| rank.metrics.clone()).collect(),
                fleet: self.fleet.clone(),
                at_once: Arc::clone(&self.scrapes),
            };
            running.push(self.tasks.spawn(scraper.run()));
        }
        running
    }

    fn subscribe(&self, publisher: &Publisher, rank: &Joining, last: Option<Applied>) -> AbortHandle {
        let Joining { place, address, rank, metrics, .. } = rank;
        let events = match publisher.events.clone() {
            Events::Dial(endpoint) => Stream::Dial(endpoint),
            Events::Bind(endpoint) => Stream::Door(self.doors.enter(endpoint, *address)),
        };
        let source = Source {
            engine: self.engine,
            events,
            replay: publisher.replay.clone(),
            last,
            replay_timeout: self.replay_timeout,
            silence: SILENCE,
        };
        let name = format!("{}/{address}/{rank}", self.pool);
        let subscriber = Subscriber::new(*place, name, source, self.updates.clone(), metrics.clone());
        self.tasks.spawn(subscriber.run())
    }

    /// Lets everyone go.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.members.drain().for_each(|(_, member)| member.stop());
    }

    /// The places of a worker's ranks, and where the pool hears of them.
    pub(super) fn line_to(&self, address: SocketAddr) -> (Vec<u64>, mpsc::Sender<Update>) {
        let joining = self.members.get(&address).map(|member| member.joining.as_slice()).unwrap_or_default();
        (joining.iter().map(|rank| rank.place).collect(), self.updates.clone())
    }

    /// The metrics of every rank.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &WorkerMetrics> {
        self.members.values().flat_map(|member| &member.joining).map(|rank| &rank.metrics)
    }
}
