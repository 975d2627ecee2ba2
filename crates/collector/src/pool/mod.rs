//! Pools: the index over the caches of workers that serve the same model, and who owns it.
//!
//! One task (`owner`) holds a pool's index. Subscribers send it updates, the feed and the metrics ask it; both ways are
//! bounded. Everyone else sees a [`View`]: how far the index is, and whether the pool is ready.

mod crew;
mod generations;
mod owner;
mod refusal;
mod reports;
mod roll;
mod roster;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use warmroute_index::Stats;
use warmroute_routing::feed::Request;
use warmroute_routing::page::{Generation, Slot};

use self::crew::Crew;
pub use self::crew::Tasks;
use self::generations::Generations;
use self::owner::{Ask, Owner};
pub use self::refusal::Refusal;
pub(crate) use self::roll::{MAX_RANKS, Roll};
use crate::config::{PoolConfig, WorkerConfig};
use crate::engine::{News, Update};
use crate::feed::Answer;
use crate::fleet::Fleet;
use crate::inspect::{ByTier, Explanation, PoolReport, Question};
use crate::metrics::{Metrics, PoolMetrics, WorkerMetrics};
use crate::snapshot::{Keeper, SavedWorker};

/// Updates that may wait for the owner. Each may hold a batch.
const UPDATES: usize = 256;
/// Pages that are counted at once: whoever else asks waits for so many only.
const PAGES_AT_ONCE: u32 = 256;
/// Questions that may wait for the owner.
const ASKS: usize = 64;

/// A pool, as everyone but its owner knows it.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its configuration, without the workers and prompts.
    config: Arc<PoolConfig>,
    view: watch::Receiver<View>,
    asks: mpsc::Sender<Ask>,
    metrics: PoolMetrics,
    fleet: Fleet,
    crew: Arc<Mutex<Crew>>,
    /// Held while the workers change.
    roll: Arc<tokio::sync::Mutex<Roll>>,
    /// The workers whose engines are to be asked where they publish; none once the pool has stopped.
    unknown: Arc<watch::Sender<Option<BTreeSet<SocketAddr>>>>,
}

/// How far a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The index's generation.
    pub generation: Generation,
    /// Pages of the index.
    pub pages: u32,
    /// The index's position.
    pub version: u64,
    /// Whether the feed may answer.
    pub ready: bool,
    /// The workers of which it is not yet known what they hold.
    pub missing: Arc<[String]>,
    /// The workers of which nothing is indexed, and why.
    pub refused: Arc<[(String, Refusal)]>,
}

/// A pool in numbers.
#[derive(Clone, Copy, Debug)]
pub struct PoolStats {
    /// Its index.
    pub index: Stats,
    /// Pages of the index.
    pub pages: u32,
    /// The index's position.
    pub version: u64,
    /// Updates that wait.
    pub queue_length: usize,
    /// Workers whose events are connected.
    pub workers_up: usize,
    /// Whether the feed may answer.
    pub ready: bool,
}

/// The pool's owner has ended: the collector stops.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the pool has ended")]
pub struct PoolEnded;

// === impl Pool ===

impl Pool {
    /// Starts a pool: its owner, and a subscriber for each rank of each worker. They run as `tasks`.
    /// `snapshots`: who keeps what another collector knew of it.
    pub fn start(
        config: &PoolConfig,
        ready_timeout: Duration,
        metrics: &Arc<Metrics>,
        tasks: &Tasks,
        snapshots: Option<&Keeper>,
    ) -> Self {
        let (updates, inbox) = mpsc::channel(UPDATES);
        let (asks, asked) = mpsc::channel(ASKS);
        let pool_metrics = metrics.pool(&config.name);
        let saved = snapshots.map(|keeper| keeper.load(config, &pool_metrics)).unwrap_or_default();
        // A generation's number is larger than any of an earlier life.
        let fleet = Fleet::new(Generations::default().next().0, config.block_size);
        let mut crew = Crew::new(config, updates, fleet.clone(), tasks.clone(), Arc::clone(metrics), saved);
        let roll = Roll::new(config.name.clone(), config.workers.clone(), config.discover.is_some());
        let mut change = crew.change(&config.workers);
        let joining = std::mem::take(&mut change.joining);
        let owner = Owner::new(config, ready_timeout, inbox, asked, pool_metrics.clone(), joining);
        let view = owner.view();
        tasks.spawn(owner.run());
        crew.start(&change);
        Self {
            config: Arc::new(PoolConfig { workers: Vec::new(), prompts: None, ..config.clone() }),
            view,
            asks,
            metrics: pool_metrics,
            fleet,
            crew: Arc::new(Mutex::new(crew)),
            unknown: Arc::new(watch::Sender::new(Some(roll.unknown()))),
            roll: Arc::new(tokio::sync::Mutex::new(roll)),
        }
    }

    /// Whether a configuration differs from this pool's at most in its workers and prompts, so that it can go on.
    pub fn fits(&self, config: &PoolConfig) -> bool {
        *self.config == PoolConfig { workers: Vec::new(), prompts: None, ..config.clone() }
    }

    /// Takes over a configuration's workers. Those that stay notice nothing.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub async fn change_workers(&self, workers: Vec<WorkerConfig>) -> Result<(), PoolEnded> {
        self.rearrange(|roll| roll.configured(workers)).await
    }

    /// Changes what is said of who the workers are, and lets them come and go accordingly.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub(crate) async fn rearrange(&self, said: impl FnOnce(&mut Roll)) -> Result<(), PoolEnded> {
        let mut roll = self.roll.lock().await;
        said(&mut roll);
        let workers = roll.workers();
        let mut change = self.crew().change(&workers);
        let (leaving, joining) = (std::mem::take(&mut change.leaving), std::mem::take(&mut change.joining));
        let is_complete = roll.is_complete();
        self.ask(|done| Ask::Change { leaving, joining, is_complete, done }).await?;
        self.crew().start(&change);
        let unknown = roll.unknown();
        self.unknown.send_if_modified(|asked| match asked {
            Some(asked) if *asked != unknown => {
                *asked = unknown;
                true
            }
            // A pool that has stopped asks nobody.
            Some(_) | None => false,
        });
        Ok(())
    }

    /// The workers whose engines are to be asked where they publish, now and from now on; none once the pool has stopped.
    pub(crate) fn unknown(&self) -> watch::Receiver<Option<BTreeSet<SocketAddr>>> {
        self.unknown.subscribe()
    }

    /// A worker's engine does not tell where it publishes: the pool waits for it no longer.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub(crate) async fn cannot_be_known(&self, address: SocketAddr) -> Result<(), PoolEnded> {
        let (places, updates) = self.crew().line_to(address);
        for worker in places {
            updates.send(Update { worker, news: News::Settled }).await.map_err(|_| PoolEnded)?;
        }
        Ok(())
    }

    /// Stops listening to its workers. The pool ends once nobody asks it any more.
    pub fn stop(&self) {
        self.unknown.send_replace(None);
        self.crew().stop();
        self.metrics.leave();
    }

    fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Its configuration, without the workers.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// What is known of its workers, for a snapshot: one after another, each as it is then.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub(crate) async fn save(&self) -> Result<Vec<SavedWorker>, PoolEnded> {
        let mut workers = Vec::new();
        for place in self.ask(Ask::Places).await? {
            workers.extend(self.ask(|reply| Ask::Save(place, reply)).await?);
        }
        Ok(workers)
    }

    /// How far it is, now and from now on.
    pub fn view(&self) -> watch::Receiver<View> {
        self.view.clone()
    }

    /// Its metrics.
    pub fn metrics(&self) -> &PoolMetrics {
        &self.metrics
    }

    /// What all proxies have in flight at its workers.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Answers a publisher's request from the index as it is now.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub async fn answer(&self, request: Request) -> Result<Answer, PoolEnded> {
        self.ask(|reply| Ask::Feed(request, reply)).await
    }

    /// What each worker has of a prompt.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub async fn explain(&self, question: Question) -> Result<Explanation, PoolEnded> {
        self.ask(|reply| Ask::Explain(question, reply)).await
    }

    /// The workers, with what they hold. The pages are counted one after another while the index goes on: a block that
    /// comes or goes meanwhile may be counted or not. Where a new generation begins meanwhile, all are counted again.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub async fn report(&self) -> Result<PoolReport, PoolEnded> {
        let (listed, counts, stats) = loop {
            let generation = self.view.borrow().generation;
            let listed = self.ask(Ask::List).await?;
            let stats = self.ask(Ask::Stats).await?;
            if let Some(counts) = self.count(generation, stats.pages).await? {
                break (listed, counts, stats);
            }
        };
        let mut workers = Vec::with_capacity(listed.len());
        for worker in listed {
            let blocks = worker.slot.and_then(|slot| counts.get(&slot).copied()).unwrap_or_default();
            let stats = self.ask(|reply| Ask::WorkerStats(worker.place, reply)).await?;
            workers.push(worker.with(blocks, stats));
        }
        let memory_bytes = stats.index.memory_bytes as u64;
        Ok(PoolReport {
            pool: self.name().to_owned(),
            engine: self.config.engine.to_string(),
            block_size: self.config.block_size,
            ready: stats.ready,
            blocks: stats.index.blocks,
            unpublished: stats.index.unpublished,
            orphans: stats.index.orphans,
            names: stats.index.names,
            pages: stats.pages,
            memory_bytes,
            memory_bytes_per_block: memory_bytes.checked_div(stats.index.nodes as u64),
            prompts: None,
            workers,
        })
    }

    /// The published blocks by slot; none if a new generation begins meanwhile.
    async fn count(
        &self,
        generation: Generation,
        pages: u32,
    ) -> Result<Option<HashMap<Slot, ByTier>>, PoolEnded> {
        let mut counts = HashMap::<Slot, ByTier>::new();
        let mut next = 0;
        while next < pages {
            let end = next.saturating_add(PAGES_AT_ONCE).min(pages);
            let census = self.ask(|reply| Ask::Count(next..end, reply)).await?;
            if census.generation != generation {
                return Ok(None);
            }
            census.blocks.iter().for_each(|(slot, blocks)| counts.entry(*slot).or_default().add(blocks));
            next = end;
        }
        Ok(Some(counts))
    }

    /// Brings the pool's gauges, and those of its workers, up to now.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub async fn refresh_metrics(&self) -> Result<(), PoolEnded> {
        let stats = self.ask(Ask::Stats).await?;
        self.metrics.refresh(&stats);
        self.metrics.proxies(self.fleet.proxies());
        self.crew().metrics().for_each(WorkerMetrics::refresh);
        Ok(())
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, PoolEnded> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(ask(reply)).await.map_err(|_| PoolEnded)?;
        answer.await.map_err(|_| PoolEnded)
    }
}
