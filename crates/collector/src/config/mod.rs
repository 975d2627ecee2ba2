//! The collector's configuration: see `docs/configuration.md`, section "The collector".
//!
//! It is read in two steps. `raw` takes the YAML by its shape and refuses unknown fields and wrong types; `check`
//! takes values that cannot be. Each complaint names the field by its path and says what to write.

mod check;
mod discover;
mod endpoint;
mod poll_url;
mod prompts;
mod raw;
mod source;
mod stamp;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use warmroute_wire::Engine;

pub use self::discover::{Discover, DiscoverFrom};
pub use self::endpoint::{Endpoint, EndpointError, Events};
pub use self::poll_url::{PollUrl, PollUrlError};
pub use self::prompts::PromptsConfig;
pub(crate) use self::source::host;
pub use self::source::{EventSource, Publisher, SourceText};
pub use self::stamp::Stamp;

/// What the collector does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where feed, health and metrics are served. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// After this long a pool is ready, whichever of its workers are missing.
    pub ready_timeout: Duration,
    /// Where what is known is kept for the next start; none: it is not.
    pub snapshots: Option<SnapshotConfig>,
    /// The pools, with different names.
    pub pools: Vec<PoolConfig>,
}

/// How snapshots are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotConfig {
    /// One file for each pool.
    pub directory: PathBuf,
    /// The pause between two snapshots of a pool.
    pub interval: Duration,
}

/// Workers that serve the same model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Its name in the feed's path.
    pub name: String,
    /// What its workers run.
    pub engine: Engine,
    /// Tokens in a block.
    pub block_size: u32,
    /// Model names that mean the base model.
    pub base_models: Vec<String>,
    /// How many blocks the pool holds, roughly.
    pub expected_blocks: u32,
    /// Blocks per worker that may wait for their parent.
    pub max_orphans: usize,
    /// How long a replay may take.
    pub replay_timeout: Duration,
    /// The pause between two health checks of a worker; none: there are none.
    pub health_interval: Option<Duration>,
    /// The pause between two looks at an engine's gauges; none: there are none.
    pub gauges_interval: Option<Duration>,
    /// Where the tokens of text and chat prompts come from; none: there are none.
    pub prompts: Option<PromptsConfig>,
    /// The workers, with different addresses.
    pub workers: Vec<WorkerConfig>,
    /// What lists further ones.
    pub discover: Option<Discover>,
}

/// One engine, with all of its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// The endpoint, as Envoy knows it.
    pub address: SocketAddr,
    /// Where its events come from; none where that is not known: the engine is asked.
    pub source: Option<EventSource>,
    /// Tokens in a block, as the engine says where it has been asked.
    pub block_size: Option<u32>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The text is no YAML, or not of the right shape.
    #[error("{0}")]
    Shape(String),
    /// A value that cannot be.
    #[error("{field}: {message}")]
    Value {
        /// The field's path, as `pools[0].workers[1].events`.
        field: String,
        /// What to write.
        message: String,
    },
}

// === impl WorkerConfig ===

impl WorkerConfig {
    /// How many ranks it has; 1 where that is not known.
    pub fn ranks(&self) -> u16 {
        self.source.as_ref().map_or(1, EventSource::ranks)
    }
}

// === impl Config ===

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no configuration.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Reads a configuration.
    ///
    /// # Errors
    ///
    /// The text is no YAML, has an unknown field, a wrong type, or a value that cannot be.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        check::config(raw::parse(text)?)
    }
}
