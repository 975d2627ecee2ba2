//! Health checks: whether each worker answers `GET /health`.
//!
//! Events tell what an engine has cached, not whether it serves: a process may publish and refuse requests, or die behind
//! a proxy that keeps the event connection. One checker for each worker asks, whatever its ranks are; the rule of how
//! many answers make a state is in `verdict`, the request in `request`.

mod request;
mod verdict;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use self::verdict::Verdict;
use crate::engine::{News, Update};
use crate::metrics::WorkerMetrics;

/// An answer may take so long. An engine that is busy with a large step answers late.
const LIMIT: Duration = Duration::from_secs(2);

/// Asks one worker for ever.
#[derive(Debug)]
pub struct Checker {
    /// The worker's endpoint.
    pub address: SocketAddr,
    /// The pause between the starts of two checks.
    pub interval: Duration,
    /// Its ranks: their places in the pool, and their metrics.
    pub ranks: Vec<(u64, WorkerMetrics)>,
    /// Where the pool hears of a change.
    pub updates: mpsc::Sender<Update>,
}

// === impl Checker ===

impl Checker {
    /// Asks until the pool is gone.
    pub async fn run(self) {
        let mut verdict = Verdict::default();
        loop {
            let next = Instant::now() + self.interval;
            let answer = request::status(self.address, LIMIT).await;
            let is_well = answer.as_ref().is_ok_and(|status| is_well(*status));
            self.ranks.iter().for_each(|(_, metrics)| metrics.health_check(is_well));
            if let Some(healthy) = verdict.heard(is_well) {
                if healthy {
                    info!(worker = %self.address, "the worker is healthy");
                } else {
                    warn!(worker = %self.address, ?answer, "the worker is not healthy");
                }
                for (place, metrics) in &self.ranks {
                    metrics.healthy(healthy);
                    let update = Update { worker: *place, news: News::Healthy(healthy) };
                    if self.updates.send(update).await.is_err() {
                        return;
                    }
                }
            }
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.updates.closed() => return,
            }
        }
    }
}

/// Whether a status says that the worker serves. One that has no such path (404) serves.
fn is_well(status: u16) -> bool {
    (200..500).contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_know_the_path_serves() {
        let well = [200, 204, 301, 401, 404, 405].map(is_well);
        assert_eq!((well, [100, 500, 502, 503].map(is_well)), ([true; 6], [false; 4]));
    }
}
