//! Workers by a file, read again where it changes.

use std::path::PathBuf;
use std::time::Duration;

use tracing::{info, warn};
use warmroute_wire::Engine;

use crate::config::{ConfigError, Discover, Stamp, WorkerConfig};
use crate::pool::Pool;

/// A list of more bytes is none.
const MAX_BYTES: u64 = 16 << 20;

/// A file, and how it last was.
#[derive(Debug)]
pub(super) struct ListFile {
    path: PathBuf,
    seen: Option<Stamp>,
}

// === impl ListFile ===

impl ListFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, seen: None }
    }

    /// Reads it, where it has changed since it was last read.
    fn look(&mut self, engine: Engine) -> Option<Result<Vec<WorkerConfig>, ConfigError>> {
        let stamp = Stamp::of(&self.path);
        if stamp.is_some() && stamp == self.seen {
            return None;
        }
        // One that is not there is looked for at each turn.
        self.seen = stamp;
        Some(self.read(engine))
    }

    fn read(&self, engine: Engine) -> Result<Vec<WorkerConfig>, ConfigError> {
        let unreadable = |source| ConfigError::Read { path: self.path.display().to_string(), source };
        if std::fs::metadata(&self.path).map_err(unreadable)?.len() > MAX_BYTES {
            return Err(unreadable(std::io::ErrorKind::FileTooLarge.into()));
        }
        Discover::workers(&std::fs::read_to_string(&self.path).map_err(unreadable)?, engine)
    }
}

/// Watches for ever. A file that cannot be used changes nothing.
pub(super) async fn watch(pool: Pool, engine: Engine, mut file: ListFile, interval: Duration) {
    let mut told = None;
    loop {
        if let Some(read) = file.look(engine) {
            pool.metrics().discovery("file", read.is_ok());
            match read {
                Ok(workers) => {
                    told = None;
                    info!(pool = pool.name(), workers = workers.len(), path = %file.path.display(), "read the workers");
                    if pool.rearrange(|roll| roll.listed(workers)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    // A file that is not there is looked for each time.
                    if told.as_ref() != Some(&error) {
                        warn!(pool = pool.name(), path = %file.path.display(), error,
                            "the workers cannot be read; those that are there stay");
                        told = Some(error);
                    }
                }
            }
        }
        tokio::time::sleep(interval).await;
    }
}
