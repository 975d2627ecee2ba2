//! The figures, as a table and as JSON.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::demo::figures::percentile_ms;

/// All sizes.
#[derive(Default)]
pub(super) struct Report {
    pub(super) rows: Vec<Row>,
}

/// One size.
pub(super) struct Row {
    pub(super) workers: usize,
    /// Pairs of worker and block.
    pub(super) pairs: u64,
    /// Pairs a second from the engines' sockets into the index.
    pub(super) applied_per_s: f64,
    /// CPU time of the collector for each pair, the feed to one Envoy included.
    pub(super) collector_cpu_ns: f64,
    pub(super) collector_mib: f64,
    /// Resident memory of the collector for each pair.
    pub(super) collector_bytes: f64,
    pub(super) envoy_mib: f64,
    /// Resident memory of Envoy for each pair.
    pub(super) envoy_bytes: f64,
    /// From the start of a new Envoy's process until it knows the index.
    pub(super) copied_in: Duration,
    /// What the feed answered for that.
    pub(super) copy_bytes: u64,
    pub(super) freshness: Freshness,
}

/// The steady part.
pub(super) struct Freshness {
    /// From an event until a lookup saw it, ascending.
    times: Vec<Duration>,
    /// Blocks told of a second.
    rate: f64,
    /// Bytes of the feed for each event.
    feed_bytes: f64,
}

// === impl Freshness ===

impl Freshness {
    pub(super) fn new(mut times: Vec<Duration>, took: Duration, pairs: u64, feed_bytes: f64) -> Self {
        times.sort_unstable();
        Self { times, rate: pairs as f64 / took.as_secs_f64(), feed_bytes }
    }

    fn ms(&self, percent: usize) -> f64 {
        percentile_ms(&self.times, percent)
    }
}

// === impl Row ===

impl Row {
    fn to_json(&self) -> Value {
        json!({
            "workers": self.workers,
            "blocks": self.pairs,
            "applied_per_s": self.applied_per_s,
            "collector_cpu_ns_per_block": self.collector_cpu_ns,
            "collector_mib": self.collector_mib,
            "collector_bytes_per_block": self.collector_bytes,
            "envoy_mib": self.envoy_mib,
            "envoy_bytes_per_block": self.envoy_bytes,
            "new_envoy_s": self.copied_in.as_secs_f64(),
            "copy_bytes": self.copy_bytes,
            "blocks_per_s": self.freshness.rate,
            "feed_bytes_per_event": self.freshness.feed_bytes,
            "events_looked_for": self.freshness.times.len(),
            "event_to_filter_ms": {
                "p50": self.freshness.ms(50), "p90": self.freshness.ms(90), "p99": self.freshness.ms(99),
                "max": self.freshness.ms(100),
            },
        })
    }
}

// === impl Report ===

impl Report {
    pub(super) fn to_json(&self) -> Value {
        json!({ "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>7} {:>10} {:>10} {:>7} {:>9} {:>7} {:>9} {:>7} {:>7} {:>9} {:>9} {:>8} {:>7} {:>7}",
            "workers",
            "blocks",
            "applied/s",
            "ns CPU",
            "collector",
            "B/block",
            "Envoy",
            "B/block",
            "copy s",
            "copy MiB",
            "blocks/s",
            "B/event",
            "p50 ms",
            "p99 ms"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:>7} {:>10} {:>10.0} {:>7.0} {:>5.0} MiB {:>7.1} {:>5.0} MiB {:>7.1} {:>7.2} {:>9.1} {:>9.0} {:>8.0} {:>7.1} {:>7.1}",
                row.workers,
                row.pairs,
                row.applied_per_s,
                row.collector_cpu_ns,
                row.collector_mib,
                row.collector_bytes,
                row.envoy_mib,
                row.envoy_bytes,
                row.copied_in.as_secs_f64(),
                row.copy_bytes as f64 / 1_048_576.0,
                row.freshness.rate,
                row.freshness.feed_bytes,
                row.freshness.ms(50),
                row.freshness.ms(99),
            )?;
        }
        Ok(())
    }
}
