//! The load of each worker, as Envoy's statistics show it.
//!
//! The publisher tells it, because it sums the books of all threads anyway. The statistics of a proxy cannot be removed, and
//! workers come and go with other addresses: after so many, those that come are told together.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use warmroute_routing::choose::Load;
use warmroute_routing::loads::{FleetRow, WorkerKey};

use crate::host::{Host, MetricId, MetricKind};

/// Workers of a pool that are told by their address, in the life of a publisher.
const MAX_WORKERS: usize = 1_024;

/// What all further workers are told as.
const OTHER: &str = "other";

/// The gauges of one pool.
#[derive(Debug)]
pub(super) struct LoadGauges {
    pool: String,
    own: Source,
    others: Source,
    unbooked: Source,
}

/// The gauges of who sent the load.
#[derive(Debug)]
struct Source {
    label: &'static str,
    workers: BTreeMap<SocketAddr, Gauges>,
    other: Option<Gauges>,
}

/// The gauges of one worker, its ranks together, and what they last said.
#[derive(Clone, Copy, Debug)]
struct Gauges {
    ids: [Option<MetricId>; 3],
    told: Load,
}

// === impl LoadGauges ===

impl LoadGauges {
    pub(super) fn new(pool: &str) -> Self {
        let source = |label| Source { label, workers: BTreeMap::new(), other: None };
        Self {
            pool: pool.to_owned(),
            own: source("own"),
            others: source("others"),
            unbooked: source("unbooked"),
        }
    }

    /// Tells what this proxy has in flight.
    pub(super) fn tell_own(&mut self, host: &impl Host, loads: &BTreeMap<WorkerKey, Load>) {
        self.own.tell(host, &self.pool, loads.iter().map(|(worker, load)| (worker.address, *load)));
    }

    /// Tells what other proxies have in flight, and what the engines have that nobody booked.
    pub(super) fn tell_others(&mut self, host: &impl Host, rows: &[FleetRow]) {
        self.others.tell(host, &self.pool, rows.iter().map(|row| (row.worker.address, row.others)));
        let unbooked = |row: &FleetRow| Some((row.worker.address, row.engine?.unbooked));
        self.unbooked.tell(host, &self.pool, rows.iter().filter_map(unbooked));
    }
}

// === impl Source ===

impl Source {
    /// Tells the loads; workers that are not among them have none.
    fn tell(&mut self, host: &impl Host, pool: &str, loads: impl Iterator<Item = (SocketAddr, Load)>) {
        let mut sums = BTreeMap::<SocketAddr, Load>::new();
        for (address, load) in loads.filter(|(_, load)| !load.is_none()) {
            let sum = sums.entry(address).or_default();
            *sum = sum.plus(load);
        }
        for (address, gauges) in &mut self.workers {
            gauges.tell(host, sums.remove(address).unwrap_or_default());
        }
        let mut rest = Load::default();
        for (address, load) in sums {
            if self.workers.len() < MAX_WORKERS {
                let gauges = self.workers.entry(address);
                let define = || Gauges::define(host, self.label, pool, &address.to_string());
                gauges.or_insert_with(define).tell(host, load);
            } else {
                rest = rest.plus(load);
            }
        }
        if self.other.is_some() || !rest.is_none() {
            let define = || Gauges::define(host, self.label, pool, OTHER);
            self.other.get_or_insert_with(define).tell(host, rest);
        }
    }
}

// === impl Gauges ===

impl Gauges {
    fn define(host: &impl Host, source: &str, pool: &str, worker: &str) -> Self {
        let gauge = |figure: &str| {
            let name = format!("warmroute_load_{figure};source={source};pool={pool};worker={worker}");
            host.define_metric(MetricKind::Gauge, &name)
        };
        let ids = ["requests", "prefill_tokens", "blocks"].map(gauge);
        // Whoever published before may have told more than nothing.
        Self { ids, told: Load { requests: u32::MAX, prefill_tokens: u64::MAX, blocks: u64::MAX } }
    }

    fn tell(&mut self, host: &impl Host, load: Load) {
        let figures = |load: Load| [u64::from(load.requests), load.prefill_tokens, load.blocks];
        for ((id, old), new) in self.ids.into_iter().zip(figures(self.told)).zip(figures(load)) {
            if let Some(id) = id.filter(|_| old != new) {
                host.record(id, new);
            }
        }
        self.told = load;
    }
}
