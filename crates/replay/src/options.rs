//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use warmroute_simengine::scheduler::TimeModel;

use crate::Setting;
use crate::fleet::Hardware;
use crate::router;
use crate::workload::{self, Workload, mooncake};

/// Replay a trace, or built-in workloads, through warmroute's policies, its peers' and the ideal, in simulated time
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench quality")]
pub(crate) struct Options {
    /// Replay this Mooncake trace (JSON lines with timestamp, input_length, output_length, hash_ids)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Replay this built-in workload; repeatable. Without it and without a trace: all of them
    #[arg(long = "workload", value_name = "NAME", value_parser = PossibleValuesParser::new(workload::names()))]
    workloads: Vec<String>,
    /// Compare this policy; repeatable. Without it: all of them
    #[arg(long = "policy", value_name = "NAME", value_parser = PossibleValuesParser::new(router::NAMES))]
    policies: Vec<String>,
    /// Load, as a part of the highest rate at which `default` keeps its queues bounded
    #[arg(long = "load", value_name = "SHARE", value_delimiter = ',', default_values_t = [0.5, 0.8, 0.95])]
    pub(crate) loads: Vec<f64>,
    /// Take this as the highest rate, in terms of the workload's own, in place of searching it
    #[arg(long, value_name = "RATE")]
    pub(crate) highest_rate: Option<f64>,
    /// Built-in workloads are drawn with this many seeds, and their figures taken over all of them
    #[arg(long, value_name = "N", default_value_t = 5)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first_seed: u64,
    /// Workers
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub(crate) workers: u8,
    /// Each worker's cache, in tokens; by default 500,000 for a trace, and 100,000 for built-in workloads
    #[arg(long, value_name = "TOKENS")]
    cache_tokens: Option<usize>,
    /// From the end of a prefill to its first token, in ms
    #[arg(long, default_value_t = 5, value_name = "MS")]
    base_ms: u32,
    /// A worker's time for each prompt token that is not cached, in µs
    #[arg(long, default_value_t = 100, value_name = "US")]
    prefill_us_per_token: u32,
    /// From one token of an answer to the next, in ms
    #[arg(long, default_value_t = 10, value_name = "MS")]
    decode_ms_per_token: u32,
    /// Requests that a worker runs at once
    #[arg(long, default_value_t = 64, value_name = "REQUESTS")]
    max_running: u16,
    /// From an engine's event to a lookup that sees it, in ms
    #[arg(long, default_value_t = 20, value_name = "MS")]
    event_delay_ms: u32,
    /// How long a route counts as cached before its events come, in ms
    #[arg(long, default_value_t = 2_000, value_name = "MS")]
    route_life_ms: u32,
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a chart of each figure and workload to DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) charts: Option<PathBuf>,
}

/// Each worker's cache, in tokens: about what eight accelerators hold of a large model's.
const TRACE_CACHE_TOKENS: usize = 500_000;
/// For the built-in workloads: a part of what they ask about, as a trace of an hour is of a cache.
const BUILT_IN_CACHE_TOKENS: usize = 100_000;

// === impl Options ===

impl Options {
    /// What is the same for all.
    pub(crate) fn setting(&self) -> Setting {
        let usual = if self.trace.is_some() { TRACE_CACHE_TOKENS } else { BUILT_IN_CACHE_TOKENS };
        let millis = |millis: u32| Duration::from_millis(millis.into());
        Setting {
            hardware: Hardware {
                workers: usize::from(self.workers),
                cache_tokens: self.cache_tokens.unwrap_or(usual),
                time: TimeModel {
                    base: millis(self.base_ms),
                    prefill_per_token: Duration::from_micros(self.prefill_us_per_token.into()),
                    decode_per_token: millis(self.decode_ms_per_token),
                },
                max_running: usize::from(self.max_running),
            },
            event_delay: millis(self.event_delay_ms),
            route_life: millis(self.route_life_ms),
        }
    }

    /// The policies to compare.
    pub(crate) fn policies(&self) -> Vec<&str> {
        if self.policies.is_empty() {
            router::NAMES.to_vec()
        } else {
            self.policies.iter().map(String::as_str).collect()
        }
    }

    /// The workloads to replay; each a list with one for each seed.
    pub(crate) fn workloads(&self) -> Result<Vec<Vec<Workload>>> {
        let mut workloads = Vec::new();
        if let Some(trace) = &self.trace {
            workloads.push(vec![mooncake::read(trace)?]);
        }
        let all: Vec<String> = workload::names().map(str::to_owned).collect();
        let names = if self.trace.is_none() && self.workloads.is_empty() { &all } else { &self.workloads };
        for name in names {
            let seeds = self.first_seed..self.first_seed.saturating_add(self.seeds.max(1));
            let drawn = seeds.map(|seed| workload::built_in(name, seed).context("no such workload"));
            workloads.push(drawn.collect::<Result<_>>()?);
        }
        Ok(workloads)
    }
}
