//! Text and chat prompts: the blocks of a request that carries no token IDs.
//!
//! A pool's tokens come from its model's files (`warmroute_prompts`) or from an engine that is asked over HTTP. Where both
//! are configured, the files answer, and are held against the engine at the start and from then on (`comparison`): once
//! they differ, the engine answers.
//!
//! Rendering and tokenizing is work for threads of its own kind: as many at once as there are processors, a bounded number
//! waiting, the next one refused. Whoever hangs up while it waits costs nothing, and while it is tokenized no more than the piece
//! of text that is at work.

mod answer;
mod comparison;
mod engine;
mod error;
mod pool;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use tokio::sync::{Semaphore, TryAcquireError};

pub use self::answer::{Answer, Shown, Source};
pub use self::comparison::{Comparison, compare, probes};
pub use self::engine::{Engine, EngineError};
pub use self::error::PromptsError;
use self::pool::PoolPrompts;
pub use self::pool::now;
use crate::config::PoolConfig;
use crate::inspect::PromptsReport;
use crate::metrics::Metrics;
use crate::pool::Tasks;

/// Requests that may wait for each thread.
const WAITING: usize = 16;

/// The prompts of all pools. Clones are the same.
#[derive(Clone, Debug)]
pub struct Prompts {
    pools: Arc<RwLock<BTreeMap<String, Arc<PoolPrompts>>>>,
    threads: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

// === impl Prompts ===

impl Prompts {
    /// No pools yet; as many threads as there are processors.
    pub fn new() -> Self {
        Self::with_threads(std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn with_threads(threads: usize) -> Self {
        Self {
            pools: Arc::default(),
            threads: Arc::new(Semaphore::new(threads)),
            places: Arc::new(Semaphore::new(threads * (1 + WAITING))),
        }
    }

    /// Takes over the pools of a configuration. A pool whose prompts come from where they came from goes on.
    pub fn configure(&self, configs: &[PoolConfig], metrics: &Metrics, tasks: &Tasks) {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let running = std::mem::take(&mut *pools);
        for config in configs {
            let Some(prompts) = &config.prompts else { continue };
            let pool = match running.get(&config.name).filter(|pool| pool.fits(config, prompts)) {
                Some(pool) => Arc::clone(pool),
                None => PoolPrompts::start(config, prompts, metrics, tasks),
            };
            pools.insert(config.name.clone(), pool);
        }
        for (name, pool) in running {
            if !pools.get(&name).is_some_and(|new| Arc::ptr_eq(new, &pool)) {
                pool.stop(!pools.contains_key(&name));
            }
        }
    }

    /// The blocks of a request's prompt.
    ///
    /// # Errors
    ///
    /// There is no such pool, it has no tokens, too many wait, or the request has no prompt that is understood.
    pub async fn answer(&self, pool: &str, path: &str, body: Bytes) -> Result<Answer, PromptsError> {
        let pool = self.get(pool).ok_or_else(|| PromptsError::NoPrompts(pool.to_owned()))?;
        let counting = pool.begin();
        let result = match self.places.try_acquire() {
            Ok(_place) => pool.answer(&self.threads, path, body).await,
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => Err(PromptsError::Busy),
        };
        counting.end(&result);
        result
    }

    /// Where a pool's tokens come from.
    pub fn report(&self, pool: &str) -> Option<PromptsReport> {
        Some(self.get(pool)?.report())
    }

    fn get(&self, pool: &str) -> Option<Arc<PoolPrompts>> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).get(pool).cloned()
    }
}

impl Default for Prompts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn one_request_too_many_is_refused() {
        let text = "pools:\n- name: a\n  block_size: 1\n  prompts: {engine: '127.0.0.1:1'}\n  \
                    workers: [{address: '[::1]:80', events: 'tcp://host:1'}]\n";
        let config = Config::parse(text).unwrap();
        let ask = async |threads| {
            let prompts = Prompts::with_threads(threads);
            prompts.configure(&config.pools, &Metrics::new(), &Tasks::default());
            let body = Bytes::from_static(br#"{"prompt":"a"}"#);
            prompts.answer("a", "/v1/completions", body).await.unwrap_err().kind()
        };
        assert_eq!((ask(0).await, ask(1).await), ("busy", "engine"));
    }
}
