//! Load across proxies: what a publisher reports of its proxy's requests in flight, and what the collector hands back.
//!
//! A publisher posts a [`LoadReport`]: what its proxy has in flight at each worker. The answer is a [`FleetLoad`]: what all
//! other proxies have there, and what the engines say of themselves. It is held back until that has changed, so one
//! exchange is always open, and a new one takes its place when the proxy's own load changes.
//!
//! Both are states, never changes: a report or an answer that is lost costs nothing but time.
//!
//! # Layouts, version 1
//!
//! Numbers of a fixed size are little-endian; a *varint* has seven bits in a byte, lowest first, the high bit set in all but
//! the last.
//!
//! ```text
//! report                                           answer
//! offset  size  field                              offset  size  field
//! 0       4     magic, the bytes "WRLR"            0       4     magic, the bytes "WRLA"
//! 4       2     format version, 1                  4       2     format version, 1
//! 6       2     number of rows                     6       2     number of rows
//! 8       8     proxy: its random number           8       8     position
//! 16      8     position of the last answer        16      ...   rows
//! 24      4     how long to wait, in milliseconds
//! 28      ...   rows
//! ```
//!
//! A report's row is a worker and a load; an answer's is a worker, a byte of flags, then as they say: with bit 0 the others'
//! load; with bit 1 the engine's state, its load that nobody has booked included.
//!
//! ```text
//! worker   address family: 4 or 6 (1), IP (4 or 16), port (2), rank + 1 or 0 for an unnamed one (varint)
//! load     requests, prompt tokens to compute, blocks                     (varints)
//! state    running, waiting, KV use in thousandths, age in milliseconds   (varints), unbooked load
//! ```

mod bytes;
mod load;
mod say;

use std::net::SocketAddr;

use crate::choose::Load;
pub use say::{QUARTERS, say};

/// The number of these layouts.
pub const FORMAT_VERSION: u16 = 1;

/// The most rows of a report or an answer: a pool has at most 4,096 workers, and each may be named with its rank or without.
pub const MAX_ROWS: usize = 8_192;

/// The most bytes of a report: all rows, each as long as it can be.
pub const MAX_REPORT_BYTES: usize = 28 + MAX_ROWS * (19 + 5 + 5 + 10 + 10);

/// A worker as load is booked to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerKey {
    /// The endpoint, exactly as the proxy knows it.
    pub address: SocketAddr,
    /// The data-parallel rank behind it. None: the request named none, and the engine has chosen one itself.
    pub rank: Option<u32>,
}

/// What one proxy has in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// The proxy's random number. Never 0.
    pub proxy: u64,
    /// The position of the last answer that it has; 0 if none.
    pub position: u64,
    /// How long the answer may wait for a change, in milliseconds.
    pub wait_ms: u32,
    /// The workers that have anything in hand, each once.
    pub rows: Vec<(WorkerKey, Load)>,
}

/// What the collector knows of everybody else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetLoad {
    /// Differs from that of every answer with another content.
    pub position: u64,
    /// The workers of which there is anything to say, each once.
    pub rows: Vec<FleetRow>,
}

/// What the collector knows of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetRow {
    /// The worker.
    pub worker: WorkerKey,
    /// What all other proxies have in flight there.
    pub others: Load,
    /// What its engine says of itself, where it is asked and has answered.
    pub engine: Option<EngineState>,
}

/// What an engine says of itself, some time ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineState {
    /// Requests that it works on.
    pub running: u32,
    /// Requests that wait in it.
    pub waiting: u32,
    /// How much of its KV cache its requests hold, in thousandths.
    pub kv_permille: u16,
    /// How long ago it said so, in milliseconds.
    pub age_ms: u32,
    /// Work that it has and that no proxy has booked.
    pub unbooked: Load,
}

/// Why bytes are not a report or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadsError {
    /// The bytes end early or go on too long.
    #[error("load has the wrong length")]
    Length,
    /// Something else.
    #[error("load does not begin with its magic bytes")]
    Magic,
    /// Another layout.
    #[error("load has format version {0}, not {FORMAT_VERSION}")]
    Version(u16),
    /// A field holds what it cannot.
    #[error("load has an impossible {0}")]
    Field(&'static str),
}

/// The path of a pool's exchange.
pub fn path(pool: &str) -> String {
    format!("/v1/pools/{pool}/load")
}

#[cfg(test)]
mod tests;
