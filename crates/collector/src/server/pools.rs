//! The pools that are served, as the configuration last said.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tracing::{info, warn};

use crate::config::{Config, PoolConfig};
use crate::discovery;
use crate::metrics::Metrics;
use crate::pool::{Pool, PoolEnded, Tasks};
use crate::prompts::Prompts;
use crate::snapshot::Keeper;

/// The pools, by name. Clones are the same pools.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools(Arc<RwLock<BTreeMap<String, Pool>>>);

/// Takes over new configurations while the collector serves.
#[derive(Debug)]
pub struct Reloader {
    pools: Pools,
    prompts: Prompts,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    snapshots: Option<Keeper>,
    /// The address of the configuration that the collector started with.
    listen: SocketAddr,
}

// === impl Pools ===

impl Pools {
    pub(super) fn get(&self, name: &str) -> Option<Pool> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<Pool> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn insert(&self, pool: Pool) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(pool.name().to_owned(), pool);
    }

    fn remove(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

// === impl Reloader ===

impl Reloader {
    pub(super) fn new(
        pools: Pools,
        prompts: Prompts,
        metrics: Arc<Metrics>,
        tasks: Tasks,
        snapshots: Option<Keeper>,
        listen: SocketAddr,
    ) -> Self {
        Self { pools, prompts, metrics, tasks, snapshots, listen }
    }

    /// Takes over a configuration. A pool goes on where only its workers change, and a worker where nothing of it does;
    /// everything else begins anew. The address to listen at and the place of snapshots cannot change.
    ///
    /// # Errors
    ///
    /// The collector stops.
    pub async fn apply(&self, config: &Config) -> Result<(), PoolEnded> {
        if config.listen != self.listen {
            warn!(from = %self.listen, to = %config.listen, "`listen` changes at the next start only");
        }
        if config.snapshots.as_ref() != self.snapshots.as_ref().map(Keeper::config) {
            warn!("`snapshots` changes at the next start only");
        }
        for pool in self.pools.all() {
            if config.pools.iter().all(|other| other.name != pool.name()) {
                info!(pool = pool.name(), "the pool is gone");
                self.pools.remove(pool.name());
                pool.stop();
            }
        }
        for pool in &config.pools {
            match self.pools.get(&pool.name) {
                Some(running) if running.fits(pool) => {
                    running.change_workers(pool.workers.clone()).await?;
                }
                running => {
                    if let Some(old) = running {
                        info!(pool = %pool.name, "the pool begins anew");
                        old.stop();
                    }
                    self.start_pool(pool, config.ready_timeout);
                }
            }
        }
        self.prompts.configure(&config.pools, &self.metrics, &self.tasks);
        Ok(())
    }

    /// Starts the pools of the first configuration.
    pub(super) fn start(&self, config: &Config) {
        config.pools.iter().for_each(|pool| self.start_pool(pool, config.ready_timeout));
        self.prompts.configure(&config.pools, &self.metrics, &self.tasks);
    }

    fn start_pool(&self, config: &PoolConfig, ready_timeout: Duration) {
        let snapshots = self.snapshots.as_ref();
        let pool = Pool::start(config, ready_timeout, &self.metrics, &self.tasks, snapshots);
        let PoolConfig { engine, block_size, discover, .. } = config;
        self.tasks.spawn(discovery::run(pool.clone(), *engine, *block_size, discover.clone()));
        self.pools.insert(pool);
    }

    /// A configuration has been read, and taken over or not.
    pub fn loaded(&self, load: Load) {
        self.metrics.config_load(load);
    }
}

/// What became of a configuration file that was read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// It has been taken over.
    Applied,
    /// It says what is so already.
    Unchanged,
    /// It cannot be used: everything stays as it is.
    Invalid,
}

// === impl Load ===

impl Load {
    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Invalid => "invalid",
        }
    }
}
