//! Values that cannot be.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::raw::{RawConfig, RawPool, RawWorker};
use super::{Config, ConfigError, Endpoint, Events, PoolConfig, WorkerConfig};
use crate::wire::Engine;

const MAX_NAME_LEN: usize = 63;
/// A longer name would be cut in the published pool, and mean another model then.
const MAX_MODEL_NAME_LEN: usize = 255;

pub(super) fn config(raw: RawConfig) -> Result<Config, ConfigError> {
    let listen = address("listen", &raw.listen)?;
    let ready_timeout = millis("ready_timeout_ms", raw.ready_timeout_ms, 0..=3_600_000)?;
    if raw.pools.is_empty() {
        return Err(refused("pools", "name at least one pool"));
    }
    let mut names = HashSet::new();
    let mut pools = Vec::with_capacity(raw.pools.len());
    for (i, raw) in raw.pools.into_iter().enumerate() {
        let path = format!("pools[{i}]");
        if !names.insert(raw.name.clone()) {
            return Err(refused(
                format!("{path}.name"),
                format!("`{}` is the name of another pool too", raw.name),
            ));
        }
        pools.push(pool(&path, raw)?);
    }
    doors(&pools)?;
    Ok(Config { listen, ready_timeout, pools })
}

/// A port that engines dial belongs to one pool: a message says its worker, not its pool.
fn doors(pools: &[PoolConfig]) -> Result<(), ConfigError> {
    let mut owners = HashMap::new();
    for (i, pool) in pools.iter().enumerate() {
        for (j, worker) in pool.workers.iter().enumerate() {
            let Events::Bind(endpoint) = &worker.events else { continue };
            for port in endpoint.port()..endpoint.port().saturating_add(worker.ranks) {
                if *owners.entry(port).or_insert(i) != i {
                    let message = format!("workers of another pool dial port {port} too");
                    return Err(refused(format!("pools[{i}].workers[{j}].events"), message));
                }
            }
        }
    }
    Ok(())
}

/// A port of an engine's tells of one rank: two workers at one would each be credited with what the other holds. Two pools
/// may follow the same engines.
fn dialled_once(path: &str, workers: &[WorkerConfig]) -> Result<(), ConfigError> {
    let mut owners = HashMap::new();
    for (i, worker) in workers.iter().enumerate() {
        let Events::Dial(events) = &worker.events else { continue };
        let endpoints = [("events", Some(events)), ("replay", worker.replay.as_ref())];
        for (name, endpoint) in endpoints.into_iter().filter_map(|(name, endpoint)| Some((name, endpoint?))) {
            for rank in (0..worker.ranks).filter_map(|rank| endpoint.of_rank(rank)) {
                if let Some(owner) = owners.insert(rank.clone(), i).filter(|owner| *owner != i) {
                    let message =
                        format!("{path}.workers[{owner}] has {rank} already: each rank has its own");
                    return Err(refused(format!("{path}.workers[{i}].{name}"), message));
                }
            }
        }
    }
    Ok(())
}

fn pool(path: &str, raw: RawPool) -> Result<PoolConfig, ConfigError> {
    let field = |name: &str| format!("{path}.{name}");
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    if raw.name.is_empty() || raw.name.len() > MAX_NAME_LEN || !raw.name.chars().all(is_name) {
        let message = format!("write 1 to {MAX_NAME_LEN} characters of `a-z`, `0-9`, `-`, `_` and `.`");
        return Err(refused(field("name"), message));
    }
    for (i, model) in raw.base_models.iter().enumerate() {
        if model.is_empty() || model.len() > MAX_MODEL_NAME_LEN {
            let message = format!("write a model's name of 1 to {MAX_MODEL_NAME_LEN} bytes");
            return Err(refused(field(&format!("base_models[{i}]")), message));
        }
    }
    if raw.base_models.len() > 1000 {
        return Err(refused(field("base_models"), "name at most 1000 models"));
    }
    let engine: Engine =
        raw.engine.parse().map_err(|error| refused(field("engine"), format!("`{}`: {error}", raw.engine)))?;
    let block_size = number(field("block_size"), raw.block_size, 1..=65_536)? as u32;
    let expected_blocks = number(field("expected_blocks"), raw.expected_blocks, 1..=1 << 28)? as u32;
    let max_orphans = number(field("max_orphans"), raw.max_orphans, 0..=1 << 24)? as usize;
    let replay_timeout = millis(field("replay_timeout_ms"), raw.replay_timeout_ms, 1..=600_000)?;
    let health_interval = millis(field("health_interval_ms"), raw.health_interval_ms, 0..=3_600_000)?;
    let workers = workers(&field("workers"), raw.workers)?;
    dialled_once(path, &workers)?;
    Ok(PoolConfig {
        workers,
        name: raw.name,
        engine,
        block_size,
        base_models: raw.base_models,
        expected_blocks,
        max_orphans,
        replay_timeout,
        health_interval: (!health_interval.is_zero()).then_some(health_interval),
    })
}

fn workers(path: &str, raw: Vec<RawWorker>) -> Result<Vec<WorkerConfig>, ConfigError> {
    if raw.is_empty() {
        return Err(refused(path, "name at least one worker"));
    }
    let mut addresses = HashSet::new();
    let mut workers = Vec::with_capacity(raw.len());
    for (i, raw) in raw.into_iter().enumerate() {
        let path = format!("{path}[{i}]");
        let worker = worker(&path, &raw)?;
        if !addresses.insert(worker.address) {
            let message = format!("{} is the address of another worker too", worker.address);
            return Err(refused(format!("{path}.address"), message));
        }
        workers.push(worker);
    }
    let ranks: usize = workers.iter().map(|worker| usize::from(worker.ranks)).sum();
    if ranks > 4096 {
        return Err(refused(path, format!("there are {ranks} ranks in all; a pool has at most 4096")));
    }
    Ok(workers)
}

fn worker(path: &str, raw: &RawWorker) -> Result<WorkerConfig, ConfigError> {
    let field = |name: &str| format!("{path}.{name}");
    let ranks = number(field("data_parallel_size"), raw.data_parallel_size, 1..=64)? as u16;
    let address = address(field("address"), &raw.address)?;
    if address.port() == 0 || address.ip().is_unspecified() {
        return Err(refused(field("address"), "write the `ip:port` that Envoy sends requests to"));
    }
    let events = events(field("events"), &raw.events, ranks)?;
    let replay = raw.replay.as_ref().map(|text| endpoint(field("replay"), text, ranks)).transpose()?;
    if let (Some(replay), Events::Dial(events)) = (&replay, &events)
        && replay.host() == events.host()
        && replay.port().abs_diff(events.port()) < ranks
    {
        let message = format!(
            "each of the {ranks} ranks takes a port from here on, and `events` does too: {events} and \
            {replay} are too close"
        );
        return Err(refused(field("replay"), message));
    }
    Ok(WorkerConfig { address, events, replay, ranks })
}

fn events(field: String, text: &str, ranks: u16) -> Result<Events, ConfigError> {
    match text.strip_prefix("bind ") {
        Some(text) => endpoint(field, text.trim_start(), ranks).map(Events::Bind),
        None => endpoint(field, text, ranks).map(Events::Dial),
    }
}

fn endpoint(field: String, text: &str, ranks: u16) -> Result<Endpoint, ConfigError> {
    let endpoint: Endpoint = text.parse().map_err(|error| refused(&field, format!("`{text}`: {error}")))?;
    if endpoint.of_rank(ranks - 1).is_none() {
        return Err(refused(field, format!("{ranks} ranks need as many ports from {} on", endpoint.port())));
    }
    Ok(endpoint)
}

fn address(field: impl Into<String>, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse().map_err(|_| refused(field, format!("`{text}`: write `ip:port` or `[ip6]:port`")))
}

fn millis(field: impl Into<String>, value: u64, range: RangeInclusive<u64>) -> Result<Duration, ConfigError> {
    number(field, value, range).map(Duration::from_millis)
}

fn number(field: impl Into<String>, value: u64, range: RangeInclusive<u64>) -> Result<u64, ConfigError> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(refused(field, format!("{value}: write a number from {} to {}", range.start(), range.end())))
}

fn refused(field: impl Into<String>, message: impl Display) -> ConfigError {
    ConfigError::Value { field: field.into(), message: message.to_string() }
}
