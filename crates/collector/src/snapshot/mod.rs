//! Snapshots: what a collector knows, kept on disk, so that its successor need not ask the engines for everything.
//!
//! ```text
//! owner --save one worker at a time--> Keeper --> <directory>/<pool>.snapshot
//!                                                      |  at the next start
//! subscriber: replay from the last batch <--last batch--+--cache, set aside--> owner
//!       | the engine still has that very batch: Resumed     | Resumed: taken over   Reset: thrown away
//!       +---------------------------------------------------+
//! ```
//!
//! A snapshot is never believed by itself. What it says of a worker is set aside until the worker's engine has shown, by
//! its replay, that the last batch the snapshot knows is a batch of its own: then the rest of the replay is applied on top.
//! An engine that has started anew meanwhile has another batch of that number, or none; an engine whose buffer does not
//! reach back so far cannot show it. In both cases everything is asked for, as without a snapshot. Until one or the other
//! is certain, nothing of the worker is published, and the pool counts it as missing.
//!
//! `format` has the bytes, `file` how they come to disk and back.

mod file;
mod format;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info, warn};
use warmroute_wire::sequence::Applied;

use crate::config::{PoolConfig, SnapshotConfig};
use crate::metrics::PoolMetrics;
use crate::pool::{Pool, PoolEnded};

/// What was known of one rank of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedWorker {
    /// Its endpoint.
    pub address: SocketAddr,
    /// Its data-parallel rank.
    pub rank: u16,
    /// The last batch that was applied.
    pub last: Applied,
    /// What it holds, as [`warmroute_index::Index::save_worker`] writes it.
    pub cache: Bytes,
}

/// What was known of a pool's workers.
#[derive(Debug, Default)]
pub struct Saved(HashMap<(SocketAddr, u16), SavedWorker>);

/// Keeps snapshots in a directory.
#[derive(Clone, Debug)]
pub struct Keeper {
    config: Arc<SnapshotConfig>,
}

// === impl Saved ===

impl Saved {
    /// What was known of a worker. It is given out once.
    pub fn take(&mut self, address: SocketAddr, rank: u16) -> Option<SavedWorker> {
        self.0.remove(&(address, rank))
    }
}

// === impl Keeper ===

impl Keeper {
    /// A keeper of snapshots where and as often as the configuration says.
    pub fn new(config: SnapshotConfig) -> Self {
        Self { config: Arc::new(config) }
    }

    /// Where and how often.
    pub(crate) fn config(&self) -> &SnapshotConfig {
        &self.config
    }

    fn path(&self, pool: &str) -> PathBuf {
        self.config.directory.join(format!("{pool}.snapshot"))
    }

    /// Reads a pool's snapshot. One that cannot be used is as none: the log says why, and it is counted.
    pub fn load(&self, pool: &PoolConfig, metrics: &PoolMetrics) -> Saved {
        let path = self.path(&pool.name);
        let read = file::read(&path).and_then(|bytes| match bytes {
            None => Ok(None),
            Some(bytes) => format::decode(&bytes, pool).map(Some),
        });
        match read {
            Ok(Some(workers)) => {
                info!(pool = %pool.name, path = %path.display(), workers = workers.len(), "read a snapshot");
                metrics.snapshot_load("loaded");
                let key = |worker: SavedWorker| ((worker.address, worker.rank), worker);
                Saved(workers.into_iter().map(key).collect())
            }
            Ok(None) => {
                metrics.snapshot_load("absent");
                Saved::default()
            }
            Err(error) => {
                warn!(pool = %pool.name, path = %path.display(), %error, "the snapshot cannot be used: everything is asked for");
                metrics.snapshot_load("refused");
                Saved::default()
            }
        }
    }

    /// Writes snapshots of the pools that there are, time after time.
    pub(crate) async fn run(self, pools: impl Fn() -> Vec<Pool>) {
        let mut due = interval(self.config.interval);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once, when nothing is known yet.
        due.tick().await;
        loop {
            due.tick().await;
            self.write_all(pools()).await;
        }
    }

    /// Writes a snapshot of each pool.
    pub(crate) async fn write_all(&self, pools: Vec<Pool>) {
        for pool in pools {
            // A pool that has ended has nothing to tell.
            let _ = self.write(&pool).await;
        }
    }

    async fn write(&self, pool: &Pool) -> Result<(), PoolEnded> {
        let workers = pool.save().await?;
        let path = self.path(pool.name());
        let bytes = format::encode(pool.config(), &workers);
        let size = bytes.len();
        let target = path.clone();
        let written = tokio::task::spawn_blocking(move || file::write(&target, &bytes)).await;
        match written.map_err(std::io::Error::other).flatten() {
            Ok(()) => {
                debug!(pool = pool.name(), workers = workers.len(), bytes = size, "wrote a snapshot");
                pool.metrics().snapshot_write("ok", size);
            }
            Err(error) => {
                warn!(pool = pool.name(), path = %path.display(), %error, "cannot write the snapshot");
                pool.metrics().snapshot_write("failed", 0);
            }
        }
        Ok(())
    }
}
