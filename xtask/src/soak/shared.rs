//! What the load, the disturbances and the watch know of each other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::tally::Tally;

/// One run's common knowledge.
pub(crate) struct Shared {
    /// When the run began.
    pub(crate) start: Instant,
    /// When it ends.
    pub(crate) end: Instant,
    tally: Mutex<Tally>,
    taken_down: Mutex<Vec<TakenDown>>,
    collector: Mutex<Option<Collector>>,
}

/// An engine that was killed or asked to end.
struct TakenDown {
    /// By its own name, which is its address.
    engine: String,
    at: Instant,
}

/// A collector's process that is not disturbed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Collector {
    pub(crate) id: u32,
    pub(crate) since: Instant,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(start: Instant, end: Instant) -> Self {
        Self {
            start,
            end,
            tally: Mutex::default(),
            taken_down: Mutex::default(),
            collector: Mutex::default(),
        }
    }

    /// What came of the requests so far.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }

    /// To be told before it happens, so that whoever asks afterwards hears of it.
    pub(crate) fn engine_goes_down(&self, engine: String) {
        lock(&self.taken_down).push(TakenDown { engine, at: Instant::now() });
    }

    /// Whether an engine was taken down between `start` and now.
    pub(crate) fn went_down_since(&self, engine: &str, start: Instant) -> bool {
        lock(&self.taken_down).iter().any(|down| down.engine == engine && down.at >= start)
    }

    /// The collector's process, or that there is none to be measured.
    pub(crate) fn set_collector(&self, id: Option<u32>) {
        *lock(&self.collector) = id.map(|id| Collector { id, since: Instant::now() });
    }

    /// The collector's process, unless it is down.
    pub(crate) fn collector(&self) -> Option<Collector> {
        *lock(&self.collector)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
