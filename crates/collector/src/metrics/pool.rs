//! What is counted for each pool.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::{DiscoveryLabels, PoolLabels, PoolResultLabels};
use crate::pool::PoolStats;

/// The metrics of all pools.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolFamilies {
    blocks: Family<PoolLabels, Gauge>,
    holdings: Family<PoolLabels, Gauge>,
    unpublished: Family<PoolLabels, Gauge>,
    orphans: Family<PoolLabels, Gauge>,
    names: Family<PoolLabels, Gauge>,
    retired_slots: Family<PoolLabels, Gauge>,
    pages: Family<PoolLabels, Gauge>,
    memory: Family<PoolLabels, Gauge>,
    version: Family<PoolLabels, Gauge>,
    generations: Family<PoolLabels, Counter>,
    queue_length: Family<PoolLabels, Gauge>,
    workers_known: Family<PoolLabels, Gauge>,
    workers_up: Family<PoolLabels, Gauge>,
    ready: Family<PoolLabels, Gauge>,
    discovery: Family<DiscoveryLabels, Counter>,
    feed_answers: Family<PoolResultLabels, Counter>,
    feed_bytes: Family<PoolLabels, Counter>,
    feed_pages: Family<PoolLabels, Counter>,
    load_reports: Family<PoolResultLabels, Counter>,
    proxies: Family<PoolLabels, Gauge>,
    snapshot_loads: Family<PoolResultLabels, Counter>,
    snapshot_writes: Family<PoolResultLabels, Counter>,
    snapshot_bytes: Family<PoolLabels, Gauge>,
}

/// The metrics of one pool.
#[derive(Clone, Debug)]
pub struct PoolMetrics {
    families: PoolFamilies,
    labels: PoolLabels,
}

// === impl PoolFamilies ===

impl PoolFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        registry.register("blocks", "Published blocks", all.blocks.clone());
        registry.register("holdings", "Published pairs of worker and block", all.holdings.clone());
        registry.register(
            "unpublished",
            "Held pairs of worker and block with an ancestor missing",
            all.unpublished.clone(),
        );
        registry.register("orphans", "Blocks that wait for their parents", all.orphans.clone());
        registry.register("names", "Engines' names for blocks", all.names.clone());
        registry.register(
            "retired_slots",
            "Slots of restarted or cleared workers that are still to be purged",
            all.retired_slots.clone(),
        );
        registry.register("pages", "Pages of the published index", all.pages.clone());
        registry.register(
            "index_memory_bytes",
            "Memory of the index, estimated from the sizes of its tables",
            all.memory.clone(),
        );
        registry.register("version", "Position of the published index", all.version.clone());
        registry.register(
            "generations",
            "Generations of the published index begun since the start",
            all.generations.clone(),
        );
        registry.register("queue_length", "Updates that wait to be applied", all.queue_length.clone());
        registry.register(
            "workers_known",
            "Ranks of workers in the configuration",
            all.workers_known.clone(),
        );
        registry.register(
            "workers_up",
            "Ranks of workers whose events are connected",
            all.workers_up.clone(),
        );
        registry.register("ready", "Whether the pool's feed answers", all.ready.clone());
        registry.register(
            "discovery_lookups",
            "Looks for workers and questions to engines where they publish, by how they ended",
            all.discovery.clone(),
        );
        registry.register("feed_answers", "Answers of the feed, by result", all.feed_answers.clone());
        registry.register("feed_bytes", "Bytes of the feed's answers", all.feed_bytes.clone());
        registry.register(
            "snapshot_loads",
            "Snapshots looked for at a start, by result: loaded, absent, refused",
            all.snapshot_loads.clone(),
        );
        registry.register("snapshot_writes", "Snapshots written, by result", all.snapshot_writes.clone());
        registry.register("snapshot_bytes", "Size of the last snapshot written", all.snapshot_bytes.clone());
        registry.register("feed_pages", "Pages in the feed's answers", all.feed_pages.clone());
        registry.register(
            "load_reports",
            "Proxies' reports of what they have in flight, by result",
            all.load_reports.clone(),
        );
        registry.register("proxies", "Proxies that report what they have in flight", all.proxies.clone());
        all
    }

    pub(super) fn of(&self, pool: &str) -> PoolMetrics {
        let labels = PoolLabels { pool: pool.to_owned() };
        drop(self.generations.get_or_create(&labels));
        PoolMetrics { families: self.clone(), labels }
    }
}

// === impl PoolMetrics ===

impl PoolMetrics {
    /// Brings the gauges up to now.
    pub fn refresh(&self, stats: &PoolStats) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let PoolStats { index, pages, version, queue_length, workers_up, ready } = *stats;
        for (family, value) in [
            (&self.families.blocks, number(index.blocks)),
            (&self.families.holdings, number(index.holdings)),
            (&self.families.unpublished, number(index.unpublished)),
            (&self.families.orphans, number(index.orphans)),
            (&self.families.names, number(index.names)),
            (&self.families.retired_slots, count(index.retired_slots)),
            (&self.families.pages, i64::from(pages)),
            (&self.families.memory, count(index.memory_bytes)),
            (&self.families.version, number(version)),
            (&self.families.queue_length, count(queue_length)),
            (&self.families.workers_known, count(index.workers)),
            (&self.families.workers_up, count(workers_up)),
            (&self.families.ready, i64::from(ready)),
        ] {
            family.get_or_create(&self.labels).set(value);
        }
    }

    /// The pool is gone: what says how it is now is taken back. What was counted of it stays.
    pub fn leave(&self) {
        let all = &self.families;
        for family in [
            &all.blocks,
            &all.holdings,
            &all.unpublished,
            &all.orphans,
            &all.names,
            &all.retired_slots,
            &all.pages,
            &all.memory,
            &all.version,
            &all.queue_length,
            &all.workers_known,
            &all.workers_up,
            &all.ready,
            &all.proxies,
            &all.snapshot_bytes,
        ] {
            family.remove(&self.labels);
        }
    }

    /// A new generation began.
    pub fn generation(&self) {
        self.families.generations.get_or_create(&self.labels).inc();
    }

    /// `source` (`dns`, `file` or `engine`) was asked who is there or where they publish, and told it or not.
    pub fn discovery(&self, source: &'static str, is_ok: bool) {
        let outcome = if is_ok { "ok" } else { "failed" };
        let labels = DiscoveryLabels { pool: self.labels.pool.clone(), source, outcome };
        self.families.discovery.get_or_create(&labels).inc();
    }

    /// So many proxies report.
    pub fn proxies(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.families.proxies.get_or_create(&self.labels).set(count);
    }

    /// A proxy has reported.
    pub fn load_report(&self, result: &'static str) {
        let labels = PoolResultLabels { pool: self.labels.pool.clone(), result };
        self.families.load_reports.get_or_create(&labels).inc();
    }

    /// A snapshot was looked for.
    pub fn snapshot_load(&self, result: &'static str) {
        let labels = PoolResultLabels { pool: self.labels.pool.clone(), result };
        self.families.snapshot_loads.get_or_create(&labels).inc();
    }

    /// A snapshot of so many bytes was written, or none.
    pub fn snapshot_write(&self, result: &'static str, bytes: usize) {
        let labels = PoolResultLabels { pool: self.labels.pool.clone(), result };
        self.families.snapshot_writes.get_or_create(&labels).inc();
        if bytes > 0 {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.families.snapshot_bytes.get_or_create(&self.labels).set(bytes);
        }
    }

    /// The feed answered with so many pages and bytes.
    pub fn feed_answer(&self, result: &'static str, pages: u32, bytes: usize) {
        let labels = PoolResultLabels { pool: self.labels.pool.clone(), result };
        self.families.feed_answers.get_or_create(&labels).inc();
        self.families.feed_pages.get_or_create(&self.labels).inc_by(u64::from(pages));
        self.families.feed_bytes.get_or_create(&self.labels).inc_by(bytes as u64);
    }
}
