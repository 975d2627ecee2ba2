//! What the collector counts, for Prometheus. Every name begins with `warmroute_collector_`.

mod config;
mod labels;
mod pool;
mod prompts;
mod worker;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::config::ConfigMetrics;
use self::pool::PoolFamilies;
use self::prompts::PromptFamilies;
use self::worker::WorkerFamilies;

pub use self::pool::PoolMetrics;
pub use self::prompts::PromptMetrics;
pub use self::worker::WorkerMetrics;
use crate::server::Load;

/// All metrics of one collector.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    config: ConfigMetrics,
    pools: PoolFamilies,
    prompts: PromptFamilies,
    workers: WorkerFamilies,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics that count nothing yet.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("warmroute_collector");
        let config = ConfigMetrics::register(&mut registry);
        let pools = PoolFamilies::register(&mut registry);
        let prompts = PromptFamilies::register(&mut registry);
        let workers = WorkerFamilies::register(&mut registry);
        Self { registry, config, pools, prompts, workers }
    }

    /// The configuration has been read again.
    pub fn config_load(&self, load: Load) {
        self.config.load(load);
    }

    /// The metrics of a pool.
    pub fn pool(&self, pool: &str) -> PoolMetrics {
        self.pools.of(pool)
    }

    /// The metrics of a pool's prompts.
    pub fn prompts(&self, pool: &str) -> PromptMetrics {
        self.prompts.of(pool)
    }

    /// The metrics of a rank of a worker.
    pub fn worker(&self, pool: &str, worker: &str, rank: u16) -> WorkerMetrics {
        self.workers.of(pool, worker, rank)
    }

    /// All of them in the text format of OpenMetrics.
    ///
    /// # Errors
    ///
    /// None that is known of: the text is written to memory.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
