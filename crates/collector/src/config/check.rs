//! Values that cannot be.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use warmroute_routing::hash::MAX_BLOCK_SIZE;
use warmroute_wire::Engine;

use super::discover::cannot_be_asked;
use super::prompts;
use super::raw::{RawConfig, RawPool, RawSnapshots, RawWorker};
use super::{
    Config, ConfigError, Discover, EventSource, Events, PoolConfig, SnapshotConfig, SourceText, WorkerConfig,
};
use crate::pool::MAX_RANKS;

const MAX_NAME_LEN: usize = 63;
/// A longer name would be cut in the published pool, and mean another model then.
const MAX_MODEL_NAME_LEN: usize = 255;

pub(super) fn config(raw: RawConfig) -> Result<Config, ConfigError> {
    let listen = address("listen", &raw.listen)?;
    let ready_timeout = millis("ready_timeout_ms", raw.ready_timeout_ms, 0..=3_600_000)?;
    let snapshots = raw.snapshots.map(snapshots).transpose()?;
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
    once(&pools)?;
    Ok(Config { listen, ready_timeout, snapshots, pools })
}

fn snapshots(raw: RawSnapshots) -> Result<SnapshotConfig, ConfigError> {
    if raw.directory.is_empty() {
        return Err(refused("snapshots.directory", "write a directory's path"));
    }
    let interval = millis("snapshots.interval_ms", raw.interval_ms, 100..=3_600_000)?;
    Ok(SnapshotConfig { directory: raw.directory.into(), interval })
}

/// A port that engines dial belongs to one pool, since a message says its worker, not its pool; and so does what is polled,
/// since each event is told once.
fn once(pools: &[PoolConfig]) -> Result<(), ConfigError> {
    let mut owners = HashMap::new();
    for (i, pool) in pools.iter().enumerate() {
        let found = pool.discover.as_ref().and_then(|discover| discover.bound(pool.engine));
        let found = found.map(|source| ("discover".to_owned(), source));
        let named = pool.workers.iter().enumerate();
        let named = named.filter_map(|(j, worker)| Some((format!("workers[{j}]"), worker.source.clone()?)));
        for (whose, source) in named.chain(found) {
            let (ours, what): (Vec<_>, _) = match &source {
                EventSource::Polled { url, .. } => (vec![url.to_string()], "is polled for"),
                EventSource::Published(publishers) => {
                    let bound = publishers.iter().filter_map(|publisher| match &publisher.events {
                        Events::Bind(endpoint) => Some(format!("port {}", endpoint.port())),
                        Events::Dial(_) => None,
                    });
                    (bound.collect(), "is dialled by")
                }
            };
            for name in ours {
                if *owners.entry(name.clone()).or_insert(i) != i {
                    let message = format!("{name} {what} workers of another pool too");
                    return Err(refused(format!("pools[{i}].{whose}.events"), message));
                }
            }
        }
    }
    Ok(())
}

/// What is dialled belongs to one worker of a pool. Two pools may follow the same engines.
fn dialled_once(path: &str, workers: &[WorkerConfig]) -> Result<(), ConfigError> {
    let mut owners = HashMap::new();
    for (i, worker) in workers.iter().enumerate() {
        for (field, name) in worker.source.iter().flat_map(EventSource::dialled) {
            if let Some(owner) = owners.insert(name.clone(), i).filter(|owner| *owner != i) {
                let message = format!("{path}[{owner}] has {name} already: each rank has its own");
                return Err(refused(format!("{path}[{i}].{field}"), message));
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
    let block_size = number(field("block_size"), raw.block_size, 1..=MAX_BLOCK_SIZE.into())? as u32;
    let expected_blocks = number(field("expected_blocks"), raw.expected_blocks, 1..=1 << 28)? as u32;
    let max_orphans = number(field("max_orphans"), raw.max_orphans, 0..=1 << 24)? as usize;
    let replay_timeout = millis(field("replay_timeout_ms"), raw.replay_timeout_ms, 1..=600_000)?;
    let health_interval = millis(field("health_interval_ms"), raw.health_interval_ms, 0..=3_600_000)?;
    let gauges_interval = millis(field("gauges_interval_ms"), raw.gauges_interval_ms, 0..=1_000)?;
    let discover = raw.discover.map(|raw| Discover::read(&field("discover"), engine, raw)).transpose()?;
    if raw.workers.is_empty() && discover.is_none() {
        return Err(refused(
            field("workers"),
            "name at least one worker, or write in `discover` what lists them",
        ));
    }
    let workers = workers(&field("workers"), engine, raw.workers)?;
    Ok(PoolConfig {
        prompts: raw.prompts.map(|raw| prompts::check(&field("prompts"), raw)).transpose()?,
        workers,
        discover,
        name: raw.name,
        engine,
        block_size,
        base_models: raw.base_models,
        expected_blocks,
        max_orphans,
        replay_timeout,
        health_interval: (!health_interval.is_zero()).then_some(health_interval),
        gauges_interval: (!gauges_interval.is_zero()).then_some(gauges_interval),
    })
}

/// Reads a list of workers.
pub(super) fn workers(
    path: &str,
    engine: Engine,
    raw: Vec<RawWorker>,
) -> Result<Vec<WorkerConfig>, ConfigError> {
    let mut addresses = HashSet::new();
    let mut workers = Vec::with_capacity(raw.len());
    for (i, raw) in raw.into_iter().enumerate() {
        let path = format!("{path}[{i}]");
        let worker = worker(&path, engine, raw)?;
        if !addresses.insert(worker.address) {
            let message = format!("{} is the address of another worker too", worker.address);
            return Err(refused(format!("{path}.address"), message));
        }
        workers.push(worker);
    }
    let ranks: usize = workers.iter().map(|worker| usize::from(worker.ranks())).sum();
    if ranks > MAX_RANKS {
        return Err(refused(path, format!("there are {ranks} ranks in all; a pool has at most {MAX_RANKS}")));
    }
    dialled_once(path, &workers)?;
    Ok(workers)
}

fn worker(path: &str, engine: Engine, raw: RawWorker) -> Result<WorkerConfig, ConfigError> {
    let field = |name: &str| format!("{path}.{name}");
    let address = address(field("address"), &raw.address)?;
    if address.port() == 0 || address.ip().is_unspecified() {
        return Err(refused(field("address"), "write the `ip:port` that Envoy sends requests to"));
    }
    let RawWorker { events, replay, data_parallel_size, .. } = raw;
    let source = if events.is_some() || replay.is_some() || data_parallel_size.is_some() {
        Some(SourceText::new(&field("events"), events, replay, data_parallel_size)?.read(path, engine)?)
    } else if engine.can_be_asked() {
        None
    } else {
        return Err(refused(field("events"), cannot_be_asked(engine)));
    };
    Ok(WorkerConfig { address, source, block_size: None })
}

fn address(field: impl Into<String>, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse().map_err(|_| refused(field, format!("`{text}`: write `ip:port` or `[ip6]:port`")))
}

pub(super) fn millis(
    field: impl Into<String>,
    value: u64,
    range: RangeInclusive<u64>,
) -> Result<Duration, ConfigError> {
    number(field, value, range).map(Duration::from_millis)
}

pub(super) fn number(
    field: impl Into<String>,
    value: u64,
    range: RangeInclusive<u64>,
) -> Result<u64, ConfigError> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(refused(field, format!("{value}: write a number from {} to {}", range.start(), range.end())))
}

pub(super) fn refused(field: impl Into<String>, message: impl Display) -> ConfigError {
    ConfigError::Value { field: field.into(), message: message.to_string() }
}
