//! The engines: the simulated engine's own scheduler and cache, under a clock that jumps from one event to the next.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{Context, Result};
use warmroute_simengine::cache::{BlockCache, Namespace};
use warmroute_simengine::scheduler::{self, Effects, Limits, RequestId, Scheduler, TimeModel};

use crate::workload::Request;

/// What the engines are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hardware {
    /// How many there are.
    pub(crate) workers: usize,
    /// Each one's cache, in tokens.
    pub(crate) cache_tokens: usize,
    /// How fast each one is.
    pub(crate) time: TimeModel,
    /// Requests that each one runs at once.
    pub(crate) max_running: usize,
}

/// All engines.
pub(crate) struct Fleet {
    engines: Vec<Engine>,
}

struct Engine {
    scheduler: Scheduler,
    due: Option<Duration>,
}

// === impl Fleet ===

impl Fleet {
    /// Engines that have done nothing yet.
    pub(crate) fn new(hardware: &Hardware, block_size: u32) -> Result<Self> {
        let block_size = NonZeroUsize::new(block_size as usize).context("a block has at least one token")?;
        let limits = Limits { max_running: hardware.max_running, max_waiting: usize::MAX };
        let engine = |worker| {
            let cache = BlockCache::new(block_size, hardware.cache_tokens / block_size, worker as u64);
            Engine { scheduler: Scheduler::new(cache, hardware.time, limits), due: None }
        };
        Ok(Self { engines: (0..hardware.workers).map(engine).collect() })
    }

    /// When something happens next, and at which worker.
    pub(crate) fn next_due(&self) -> Option<(Duration, usize)> {
        self.engines.iter().enumerate().filter_map(|(worker, engine)| Some((engine.due?, worker))).min()
    }

    /// Lets a worker do what is due.
    pub(crate) fn advance(&mut self, worker: usize, now: Duration) -> Effects {
        let Some(engine) = self.engines.get_mut(worker) else { return Effects::default() };
        let effects = engine.scheduler.advance(now);
        engine.due = engine.scheduler.next_due();
        effects
    }

    /// Sends a request to a worker.
    pub(crate) fn submit(
        &mut self,
        worker: usize,
        now: Duration,
        id: u64,
        request: &Request,
    ) -> Result<Effects> {
        let engine =
            self.engines.get_mut(worker).context("a request was sent to a worker that is not there")?;
        let request = scheduler::Request {
            id: RequestId(id),
            prompt: request.tokens(),
            namespace: Namespace::default(),
            max_tokens: request.output_tokens as usize,
        };
        let effects = engine.scheduler.submit(now, vec![request]).context("an engine refused a request")?;
        engine.due = engine.scheduler.next_due();
        Ok(effects)
    }
}
