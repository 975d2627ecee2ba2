//! vLLM since 0.31: `GET /kv_event_sources`, by rank; the block size stands in its metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;

use super::{AskError, Found, dialled, get};
use crate::config::{EventSource, Events, Publisher};

const SOURCES: &str = "/kv_event_sources";
const METRICS: &str = "/metrics";

/// One rank's `--kv-events-config`, as it came to be.
#[derive(Debug, Deserialize)]
pub(super) struct Source {
    #[serde(default)]
    enable_kv_cache_events: Option<bool>,
    #[serde(default)]
    publisher: Option<String>,
    endpoint: String,
    #[serde(default)]
    replay_endpoint: Option<String>,
}

pub(super) async fn ask(address: SocketAddr, block_size: u32) -> Result<Found, AskError> {
    let body = get(address, SOURCES, "vLLM before 0.31 cannot be asked, write `events`").await?;
    let sources = serde_json::from_slice(&body).map_err(|error| AskError::Json { path: SOURCES, error })?;
    let source = source_of(sources, address)?;
    // Its events tell it too: an engine without metrics is no worse for it.
    let metrics = get(address, METRICS, "").await.unwrap_or_default();
    Ok(Found { source, block_size: block_size_of(&String::from_utf8_lossy(&metrics), block_size) })
}

pub(super) fn source_of(
    sources: BTreeMap<u32, Source>,
    address: SocketAddr,
) -> Result<EventSource, AskError> {
    let ranks: Vec<u32> = sources.keys().copied().collect();
    if ranks.is_empty() || sources.values().any(|source| !source.is_on()) {
        return Err(AskError::Off("start it with `--kv-events-config`"));
    }
    // An engine with one rank of a larger deployment tells the rank's number there; to its own server it is the only one.
    if ranks.len() > 64 || ranks.len() > 1 && !ranks.iter().copied().eq(0..ranks.len() as u32) {
        return Err(AskError::Ranks(ranks));
    }
    let publishers = sources.into_values().map(|source| {
        let replay = source.replay_endpoint.filter(|replay| !replay.is_empty());
        Ok(Publisher {
            events: Events::Dial(dialled(&source.endpoint, address)?),
            replay: replay.map(|replay| dialled(&replay, address)).transpose()?,
        })
    });
    Ok(EventSource::Published(publishers.collect::<Result<_, AskError>>()?))
}

/// The size that `vllm:cache_config_info` tells. It has several, and which one the events have depends on the model: where
/// one of them is `expected`, it is taken to be that.
pub(super) fn block_size_of(metrics: &str, expected: u32) -> Option<u32> {
    let line = metrics.lines().find(|line| line.starts_with("vllm:cache_config_info{"))?;
    let size = |label: &str| {
        let (_, rest) = line.split_once(&format!("{label}=\""))?;
        rest.split_once('"')?.0.parse::<u32>().ok()
    };
    let sizes = ["{block_size", ",block_size", "hash_block_size", "effective_attention_block_size"].map(size);
    let sizes = || sizes.into_iter().flatten();
    sizes().find(|size| *size == expected).or_else(|| sizes().next())
}

// === impl Source ===

impl Source {
    fn is_on(&self) -> bool {
        self.enable_kv_cache_events != Some(false)
            && self.publisher.as_deref().is_none_or(|name| name == "zmq")
    }
}
