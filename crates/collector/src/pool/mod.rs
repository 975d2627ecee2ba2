//! Pools: the index over the caches of workers that serve the same model, and who owns it.
//!
//! One task (`owner`) holds a pool's index. Subscribers send it updates, the feed and the metrics ask it; both ways are
//! bounded. Everyone else sees a [`View`]: how far the index is, and whether the pool is ready.

mod generations;
mod owner;
mod roster;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use warmroute_index::Stats;
use warmroute_routing::feed::Request;
use warmroute_routing::page::Generation;

use self::owner::{Ask, Owner};
use crate::config::PoolConfig;
use crate::engine::{SILENCE, Source, Subscriber};
use crate::feed::Answer;
use crate::metrics::{Metrics, PoolMetrics, WorkerMetrics};

/// Updates that may wait for the owner. Each may hold a batch.
const UPDATES: usize = 256;
/// Questions that may wait for the owner.
const ASKS: usize = 64;

/// A pool, as everyone but its owner knows it.
#[derive(Clone, Debug)]
pub struct Pool {
    name: Arc<str>,
    view: watch::Receiver<View>,
    asks: mpsc::Sender<Ask>,
    metrics: PoolMetrics,
    workers: Arc<[WorkerMetrics]>,
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
    pub fn start(
        config: &PoolConfig,
        ready_timeout: Duration,
        metrics: &Metrics,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let (updates, inbox) = mpsc::channel(UPDATES);
        let (asks, asked) = mpsc::channel(ASKS);
        let ranks =
            || config.workers.iter().flat_map(|worker| (0..worker.ranks).map(move |rank| (worker, rank)));
        let workers: Arc<[_]> = ranks()
            .map(|(worker, rank)| metrics.worker(&config.name, &worker.address.to_string(), rank))
            .collect();
        let pool_metrics = metrics.pool(&config.name);
        let owner =
            Owner::new(config, ready_timeout, inbox, asked, pool_metrics.clone(), Arc::clone(&workers));
        let pool = Self {
            name: Arc::from(&*config.name),
            view: owner.view(),
            asks,
            metrics: pool_metrics,
            workers: Arc::clone(&workers),
        };
        tasks.spawn(owner.run());
        for (place, ((worker, rank), metrics)) in ranks().zip(workers.iter()).enumerate() {
            // The configuration has been checked: every rank has a port.
            let Some(events) = worker.events.of_rank(rank) else { continue };
            let replay = worker.replay.as_ref().and_then(|replay| replay.of_rank(rank));
            let source = Source { events, replay, replay_timeout: config.replay_timeout, silence: SILENCE };
            let name = format!("{}/{}/{rank}", config.name, worker.address);
            tasks.spawn(Subscriber::new(place, name, source, updates.clone(), metrics.clone()).run());
        }
        pool
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
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
        self.workers.iter().for_each(WorkerMetrics::refresh);
        Ok(())
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, PoolEnded> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(ask(reply)).await.map_err(|_| PoolEnded)?;
        answer.await.map_err(|_| PoolEnded)
    }
}
