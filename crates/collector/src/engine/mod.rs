//! The engines: one subscriber for each rank of each worker.
//!
//! ```text
//! SUB socket    --live batches----+
//!                                 +--> Sequence (what to apply, in what order) --> decoding --> updates --> pool
//! DEALER socket --replayed batches+
//! ```
//!
//! An engine that publishes nothing by itself is polled (`poller`), for all of its ranks at once.
//!
//! A subscriber (`subscriber`) owns the sockets of one rank (`socket`, `replay`) and keeps them alive for ever. Engines
//! that dial come in through a door (`door`), which several may share. The rules of order are in
//! `warmroute_wire::sequence`, free of
//! sockets. The way to the pool is a bounded channel: a pool that cannot keep up slows the sockets down, and the engine's
//! own queue takes the rest.

mod backoff;
mod door;
mod poller;
mod replay;
mod socket;
mod subscriber;

use std::time::Duration;

use warmroute_index::event::Event;
use warmroute_wire::sequence::{Applied, ResetCause};
use warmroute_wire::{Engine, Unsupported};

pub(crate) use self::backoff::Backoff;
pub use self::door::{Doors, Guest};
pub use self::poller::{POLL_INTERVAL, Poller};
pub use self::subscriber::Subscriber;
use crate::config::Endpoint;

/// A payload of more bytes is not read. A batch of a full step of a large engine has some hundred kilobytes.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;

/// How long a live stream may be silent before it is looked after. The ZeroMQ crate knows neither heartbeats nor
/// keepalives: a peer that vanishes without a word would never be missed.
pub const SILENCE: Duration = Duration::from_secs(10);

/// Where one rank of an engine speaks.
#[derive(Debug)]
pub struct Source {
    /// What it runs.
    pub engine: Engine,
    /// Its live events.
    pub events: Stream,
    /// Its replay, if it has one.
    pub replay: Option<Endpoint>,
    /// The last batch that a process before this one has applied, if it has kept what it knew.
    pub last: Option<Applied>,
    /// How long a replay may take.
    pub replay_timeout: Duration,
    /// A live stream that brings nothing for so long is asked, by a replay, whether it should have: [`SILENCE`].
    pub silence: Duration,
}

/// Where live events come from.
#[derive(Debug)]
pub enum Stream {
    /// An endpoint that is dialled.
    Dial(Endpoint),
    /// A door that the engine comes in by.
    Door(Guest),
}

/// What a subscriber tells its pool.
#[derive(Clone, Debug)]
pub struct Update {
    /// The worker's place in the pool. No other worker ever has it.
    pub worker: u64,
    /// What is new.
    pub news: News,
}

/// News of one worker.
#[derive(Clone, Debug)]
pub enum News {
    /// Events, in order; and the batch that they are, where the engine can be asked for it again.
    Events(Option<Applied>, Vec<Event>),
    /// What was known up to [`Source::last`] still holds.
    Resumed,
    /// Everything known of it is void.
    Reset(ResetCause),
    /// The connection to it stands, or is lost.
    Connected(bool),
    /// It answers its health checks, or does not.
    Healthy(bool),
    /// It cannot be indexed.
    Unsupported(Unsupported),
    /// All that can be known of it now is known: it has been replayed, cannot be, or cannot be reached.
    Settled,
}

// === impl Stream ===

impl std::fmt::Display for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dial(endpoint) => endpoint.fmt(f),
            Self::Door(guest) => write!(f, "bind {}", guest.endpoint()),
        }
    }
}
