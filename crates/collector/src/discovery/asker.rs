//! Asks one engine where it publishes, again and again: another process may answer one day.

use std::net::SocketAddr;
use std::time::Duration;

use tracing::{debug, info, warn};
use warmroute_wire::Engine;

use super::engine::{self, Found};
use crate::engine::Backoff;
use crate::pool::{Pool, PoolEnded};

/// The pause after an answer: a restarted engine may publish elsewhere.
const PAUSE: Duration = Duration::from_secs(5);
/// Pauses while there is none, since an engine takes its time to start.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MOST_PAUSE: Duration = Duration::from_secs(5);

/// Asks one engine for ever.
#[derive(Debug)]
pub(super) struct Asker {
    pool: Pool,
    engine: Engine,
    block_size: u32,
    address: SocketAddr,
    found: Option<Found>,
    failed: bool,
}

// === impl Asker ===

impl Asker {
    pub(super) fn new(pool: Pool, engine: Engine, block_size: u32, address: SocketAddr) -> Self {
        Self { pool, engine, block_size, address, found: None, failed: false }
    }

    /// Asks until the pool stops.
    pub(super) async fn run(mut self) {
        let mut pauses = Backoff::new(FIRST_PAUSE, MOST_PAUSE);
        loop {
            let pause = match self.ask().await {
                Ok(true) => {
                    pauses.reset();
                    PAUSE
                }
                Ok(false) => pauses.next(),
                Err(PoolEnded) => return,
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Asks once. Says whether there was an answer.
    async fn ask(&mut self) -> Result<bool, PoolEnded> {
        let asked = engine::ask(self.engine, self.block_size, self.address).await;
        self.pool.metrics().discovery("engine", asked.is_ok());
        let found = match asked {
            Ok(found) => found,
            Err(error) => {
                if std::mem::replace(&mut self.failed, true) {
                    debug!(worker = %self.address, %error, "the engine does not tell where it publishes");
                } else {
                    warn!(worker = %self.address, %error, "the engine does not tell where it publishes; asking on");
                    self.pool.cannot_be_known(self.address).await?;
                }
                return Ok(false);
            }
        };
        self.failed = false;
        if self.found.as_ref() != Some(&found) {
            info!(worker = %self.address, ranks = found.source.ranks(), "the engine tells where it publishes");
            let (address, known) = (self.address, found.clone());
            self.pool.rearrange(|roll| roll.answered(address, known.source, known.block_size)).await?;
            self.found = Some(found);
        }
        Ok(true)
    }
}
