//! The configuration as it is written.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Deserializer, Track};

use super::ConfigError;
use super::prompts::RawPrompts;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    #[serde(default = "defaults::listen")]
    pub(super) listen: String,
    #[serde(default = "defaults::ready_timeout_ms")]
    pub(super) ready_timeout_ms: u64,
    pub(super) snapshots: Option<RawSnapshots>,
    pub(super) pools: Vec<RawPool>,
}

/// `snapshots`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSnapshots {
    pub(super) directory: String,
    #[serde(default = "defaults::snapshot_interval_ms")]
    pub(super) interval_ms: u64,
}

/// An entry of `pools`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPool {
    pub(super) name: String,
    #[serde(default = "defaults::engine")]
    pub(super) engine: String,
    pub(super) block_size: u64,
    #[serde(default)]
    pub(super) base_models: Vec<String>,
    #[serde(default = "defaults::expected_blocks")]
    pub(super) expected_blocks: u64,
    #[serde(default = "defaults::max_orphans")]
    pub(super) max_orphans: u64,
    #[serde(default = "defaults::replay_timeout_ms")]
    pub(super) replay_timeout_ms: u64,
    #[serde(default = "defaults::health_interval_ms")]
    pub(super) health_interval_ms: u64,
    #[serde(default = "defaults::gauges_interval_ms")]
    pub(super) gauges_interval_ms: u64,
    pub(super) prompts: Option<RawPrompts>,
    #[serde(default)]
    pub(super) workers: Vec<RawWorker>,
    pub(super) discover: Option<RawDiscover>,
}

/// `discover`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDiscover {
    pub(super) dns: Option<String>,
    pub(super) file: Option<String>,
    pub(super) interval_ms: Option<u64>,
    pub(super) events: Option<String>,
    pub(super) replay: Option<String>,
    pub(super) data_parallel_size: Option<u64>,
}

/// An entry of `workers`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWorker {
    pub(super) address: String,
    pub(super) events: Option<String>,
    pub(super) replay: Option<String>,
    pub(super) data_parallel_size: Option<u64>,
}

mod defaults {
    pub(super) fn listen() -> String {
        "127.0.0.1:9400".to_owned()
    }

    pub(super) fn ready_timeout_ms() -> u64 {
        10_000
    }

    pub(super) fn snapshot_interval_ms() -> u64 {
        30_000
    }

    pub(super) fn engine() -> String {
        "vllm".to_owned()
    }

    pub(super) fn expected_blocks() -> u64 {
        65_536
    }

    pub(super) fn max_orphans() -> u64 {
        65_536
    }

    pub(super) fn replay_timeout_ms() -> u64 {
        5_000
    }

    pub(super) fn health_interval_ms() -> u64 {
        2_000
    }

    pub(super) fn gauges_interval_ms() -> u64 {
        500
    }
}

pub(super) fn parse(text: &str) -> Result<RawConfig, ConfigError> {
    read(text)
}

/// A list of workers in a file of its own.
pub(super) fn parse_workers(text: &str) -> Result<Vec<RawWorker>, ConfigError> {
    read(text)
}

/// Takes the YAML apart. The field's path is noted as it is entered, since a YAML error knows only line and column.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    let mut track = Track::new();
    let parsed = serde_saphyr::with_deserializer_from_str(text, |yaml| {
        T::deserialize(Deserializer::new(yaml, &mut track))
    });
    parsed.map_err(|error| {
        let path = track.path().to_string();
        // The crate's words for a wrong type say what a value is not, in terms of Rust.
        let error =
            error.without_snippet().to_string().replace("invalid u64", "write a whole number, 0 or more;");
        ConfigError::Shape(if path == "." { error } else { format!("{path}: {error}") })
    })
}
