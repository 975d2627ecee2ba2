//! What the engines say of their own load, in their Prometheus metrics.
//!
//! One scraper for each engine asks. What it hears tells of work that no proxy of ours has sent: the books of
//! [`crate::fleet`] say what counts as such.

mod parse;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info};
use warmroute_routing::loads::WorkerKey;

pub use self::parse::Gauges;
use crate::fleet::Fleet;
use crate::http::{HttpError, Limits, ask};
use crate::metrics::WorkerMetrics;
use warmroute_wire::Engine;

/// The shortest pause after an answer that tells nothing.
const PAUSE: Duration = Duration::from_secs(2);

/// A later answer would be no news. An engine's histograms take some hundred KiB.
const LIMITS: Limits = Limits { time: Duration::from_secs(1), bytes: 4 << 20 };

/// Why an engine's load is not known.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("status {0}")]
    Status(StatusCode),
    #[error("its metrics have no gauge of this engine's requests")]
    NoGauges,
}

/// Asks one engine for ever.
#[derive(Debug)]
pub struct Scraper {
    /// The engine's endpoint.
    pub address: SocketAddr,
    /// What it runs, which decides the names of its metrics.
    pub engine: Engine,
    /// The pause between the starts of two scrapes.
    pub interval: Duration,
    /// The metrics of its ranks, in their order.
    pub ranks: Vec<WorkerMetrics>,
    /// Who hears of it.
    pub fleet: Fleet,
    /// How many scrapers may ask at once.
    pub at_once: Arc<Semaphore>,
}

// === impl Scraper ===

impl Scraper {
    /// Asks until it is aborted.
    pub async fn run(self) {
        let mut complained = false;
        loop {
            let next = Instant::now() + self.interval;
            let gauges = self.scrape().await;
            self.ranks.iter().for_each(|metrics| metrics.scrape(gauges.is_ok()));
            match gauges {
                Ok(gauges) => {
                    if std::mem::take(&mut complained) {
                        info!(worker = %self.address, "the engine tells its load again");
                    }
                    gauges.into_iter().for_each(|(rank, gauges)| self.hear(rank, gauges));
                    sleep_until(next).await;
                }
                Err(error) => {
                    if std::mem::replace(&mut complained, true) {
                        debug!(worker = %self.address, %error, "the engine does not tell its load");
                    } else {
                        info!(worker = %self.address, %error, "the engine does not tell its load");
                    }
                    self.ranks.iter().for_each(WorkerMetrics::engine_untold);
                    sleep(PAUSE.max(self.interval)).await;
                }
            }
        }
    }

    /// The gauges by rank; of no rank, where the metrics do not say whose they are.
    async fn scrape(&self) -> Result<BTreeMap<Option<u32>, Gauges>, ScrapeError> {
        // It is never closed.
        let _permit = self.at_once.acquire().await;
        let (status, page) =
            ask(Method::GET, &self.address.to_string(), parse::path(self.engine), LIMITS).await?;
        if status != StatusCode::OK {
            return Err(ScrapeError::Status(status));
        }
        let gauges = parse::gauges(self.engine, &String::from_utf8_lossy(&page));
        if gauges.is_empty() {
            return Err(ScrapeError::NoGauges);
        }
        if self.ranks.len() > 1 {
            return Ok(gauges);
        }
        // An engine that is one rank of several, each with its own endpoint, tells its number there.
        let all = gauges.into_values().fold(Gauges::default(), Gauges::and);
        Ok(BTreeMap::from([(Some(0), all)]))
    }

    fn hear(&self, rank: Option<u32>, gauges: Gauges) {
        let unbooked = self.fleet.engine(WorkerKey { address: self.address, rank }, gauges);
        // What is nobody's in particular is shown at the first rank.
        if let Some(metrics) = self.ranks.get(rank.map_or(0, |rank| rank as usize)) {
            metrics.engine(gauges, unbooked.requests);
        }
    }
}
