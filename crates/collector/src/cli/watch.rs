//! The configuration file, watched while the collector serves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};
use warmroute_collector::config::{Config, Stamp};
use warmroute_collector::server::{Load, Reloader};

/// How often the file is looked at. Few file systems, and no mounted ConfigMap, can be relied on to tell.
const LOOK: Duration = Duration::from_secs(1);

/// Reads the file again where it changes and at each SIGHUP.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    seen: Option<Stamp>,
    current: Config,
}

// === impl Watch ===

impl Watch {
    /// Reads the configuration for the first time.
    pub(super) fn start(path: &Path) -> anyhow::Result<Self> {
        // Before the file is read: a change in between is seen as one.
        let seen = Stamp::of(path);
        Ok(Self { path: path.to_owned(), seen, current: Config::load(path)? })
    }

    pub(super) fn config(&self) -> &Config {
        &self.current
    }

    /// Watches until the collector stops.
    pub(super) async fn run(mut self, reloader: Reloader, mut hangup: Signal) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = hangup.recv() => self.seen = Stamp::of(&self.path),
                _ = look.tick() => {
                    let stamp = Stamp::of(&self.path);
                    if stamp == self.seen {
                        continue;
                    }
                    self.seen = stamp;
                }
            }
            self.reload(&reloader).await;
        }
    }

    async fn reload(&mut self, reloader: &Reloader) {
        let load = match Config::load(&self.path) {
            Ok(config) if config == self.current => Load::Unchanged,
            Ok(config) => {
                if reloader.apply(&config).await.is_err() {
                    // The collector stops.
                    return;
                }
                info!(path = %self.path.display(), "took over the configuration");
                self.current = config;
                Load::Applied
            }
            Err(error) => {
                warn!(path = %self.path.display(), %error, "the configuration cannot be used; the old one stays");
                Load::Invalid
            }
        };
        reloader.loaded(load);
    }
}
