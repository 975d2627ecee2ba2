//! Who decides: warmroute's policies, the peers' rules, and the ideal.

mod blind;
mod dynamo;
mod hash_ring;
mod ideal;
mod llm_d;
mod ours;
mod sglang;

use std::time::Duration;

use anyhow::Result;
use warmroute_routing::choose::{LeastLoad, LongestPrefix, Rule, Sticky, Weighed};
use warmroute_simengine::cache::CacheEvent;

use crate::gateway::Gateway;
use crate::simulation::Setting;
use crate::workload::Request;

/// A request that has come.
pub(crate) struct Arrival<'a> {
    /// Its number.
    pub(crate) id: u64,
    /// What it asks.
    pub(crate) request: &'a Request,
    /// When.
    pub(crate) now: Duration,
}

/// Where a request is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Choice {
    /// The worker's number.
    pub(crate) worker: usize,
    /// What the worker is expected to hold of the prompt.
    pub(crate) cached_blocks: u32,
}

/// Decides about one request after the other, and hears what becomes of them.
pub(crate) trait Router {
    /// Decides about a request.
    fn route(&mut self, arrival: &Arrival<'_>, gateway: &mut Gateway) -> Choice;

    /// A worker's cache changes, told without any delay: for who knows everything.
    fn stored(&mut self, _worker: usize, _events: &[CacheEvent]) {}

    /// A request's first token is there.
    fn answered(&mut self, _id: u64, _now: Duration) {}

    /// A request's last token is there.
    fn finished(&mut self, _id: u64) {}
}

/// The names of all routers, ours first.
pub(crate) const NAMES: [&str; 13] = [
    "default",
    "cost",
    "sticky",
    "prefix",
    "least_load",
    "round_robin",
    "random",
    "least_request",
    "hash_ring",
    "sglang",
    "dynamo",
    "llm_d",
    "ideal",
];

/// The router of a name; none of another name.
pub(crate) fn of_name(
    name: &str,
    block_size: u32,
    setting: &Setting,
    seed: u64,
) -> Result<Option<Box<dyn Router>>> {
    let workers = setting.hardware.workers;
    Ok(Some(match name {
        "default" => Box::new(ours::Ours::new(Rule::default(), seed)),
        "cost" => Box::new(ours::Ours::new(Rule::Cost(Weighed::default()), seed)),
        "sticky" => Box::new(ours::Ours::new(Rule::Sticky(Sticky::default()), seed)),
        "prefix" => Box::new(ours::Ours::new(Rule::Prefix(LongestPrefix), seed)),
        "least_load" => Box::new(ours::Ours::new(Rule::LeastLoad(LeastLoad), seed)),
        "round_robin" => Box::new(blind::RoundRobin::default()),
        "random" => Box::new(blind::Random::new(seed)),
        "least_request" => Box::new(blind::LeastRequest::new(seed)),
        "hash_ring" => Box::new(hash_ring::HashRing),
        "sglang" => Box::new(sglang::CacheAware::new(workers)),
        "dynamo" => Box::new(dynamo::Dynamo::new(workers, seed)),
        "llm_d" => Box::new(llm_d::LlmD::new(workers)),
        "ideal" => Box::new(ideal::Ideal::new(workers, block_size, setting.hardware.time)?),
        _ => return Ok(None),
    }))
}

/// The index of the least; the first of equals.
fn least<T: PartialOrd>(values: impl IntoIterator<Item = T>) -> usize {
    let mut values = values.into_iter().enumerate();
    let Some(first) = values.next() else { return 0 };
    values.fold(first, |least, other| if other.1 < least.1 { other } else { least }).0
}
