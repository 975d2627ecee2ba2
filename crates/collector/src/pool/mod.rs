//! Pools: the index over the caches of workers that serve the same model, and who owns it.
//!
//! One task (`owner`) holds a pool's index. Subscribers send it updates, the feed and the metrics ask it; both ways are
//! bounded. Everyone else sees a [`View`]: how far the index is, and whether the pool is ready.

mod crew;
mod generations;
mod owner;
mod refusal;
mod roster;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use warmroute_index::Stats;
use warmroute_routing::feed::Request;
use warmroute_routing::page::Generation;

use self::crew::Crew;
pub use self::crew::Tasks;
use self::owner::{Ask, Owner};
pub use self::refusal::Refusal;
use crate::config::{PoolConfig, WorkerConfig};
use crate::feed::Answer;
use crate::metrics::{Metrics, PoolMetrics, WorkerMetrics};

/// Updates that may wait for the owner. Each may hold a batch.
const UPDATES: usize = 256;
/// Questions that may wait for the owner.
const ASKS: usize = 64;

/// A pool, as everyone but its owner knows it.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its configuration, without the workers.
    config: Arc<PoolConfig>,
    view: watch::Receiver<View>,
    asks: mpsc::Sender<Ask>,
    metrics: PoolMetrics,
    crew: Arc<Mutex<Crew>>,
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
    pub fn start(config: &PoolConfig, ready_timeout: Duration, metrics: &Metrics, tasks: &Tasks) -> Self {
        let (updates, inbox) = mpsc::channel(UPDATES);
        let (asks, asked) = mpsc::channel(ASKS);
        let mut crew = Crew::new(config, updates, tasks.clone());
        let mut change = crew.change(&config.workers, metrics);
        let pool_metrics = metrics.pool(&config.name);
        let joining = std::mem::take(&mut change.joining);
        let owner = Owner::new(config, ready_timeout, inbox, asked, pool_metrics.clone(), joining);
        let view = owner.view();
        tasks.spawn(owner.run());
        crew.start(&change);
        Self {
            config: Arc::new(PoolConfig { workers: Vec::new(), ..config.clone() }),
            view,
            asks,
            metrics: pool_metrics,
            crew: Arc::new(Mutex::new(crew)),
        }
    }

    /// Whether a configuration differs from this pool's at most in its workers, so that it can go on.
    pub fn fits(&self, config: &PoolConfig) -> bool {
        *self.config == PoolConfig { workers: Vec::new(), ..config.clone() }
    }

    /// Takes over a configuration's workers. Those that stay notice nothing.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub async fn change_workers(&self, workers: &[WorkerConfig], metrics: &Metrics) -> Result<(), PoolEnded> {
        let mut change = self.crew().change(workers, metrics);
        let (leaving, joining) = (std::mem::take(&mut change.leaving), std::mem::take(&mut change.joining));
        self.ask(|done| Ask::Change { leaving, joining, done }).await?;
        self.crew().start(&change);
        Ok(())
    }

    /// Stops listening to its workers. The pool ends once nobody asks it any more.
    pub fn stop(&self) {
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

    /// How far it is, now and from now on.
    pub fn view(&self) -> watch::Receiver<View> {
        self.view.clone()
    }

    /// Its metrics.
    pub fn metrics(&self) -> &PoolMetrics {
        &self.metrics
    }

    /// Answers a publisher's request from the index as it is now.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub async fn answer(&self, request: Request) -> Result<Answer, PoolEnded> {
        self.ask(|reply| Ask::Feed(request, reply)).await
    }

    /// Brings the pool's gauges, and those of its workers, up to now.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub async fn refresh_metrics(&self) -> Result<(), PoolEnded> {
        let stats = self.ask(Ask::Stats).await?;
        self.metrics.refresh(&stats);
        self.crew().metrics().for_each(WorkerMetrics::refresh);
        Ok(())
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, PoolEnded> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(ask(reply)).await.map_err(|_| PoolEnded)?;
        answer.await.map_err(|_| PoolEnded)
    }
}
