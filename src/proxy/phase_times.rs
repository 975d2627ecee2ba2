//! How long each phase of a request takes. Built only with the feature `phase-times`.
//!
//! One clock read ends a phase and begins the next, so that each interval contains the cost of one read, which is told as a
//! metric of its own (`warmroute_clock_read_ns`) for whoever wants to take it off. Times are told as histograms of
//! nanoseconds, a request at a time, so that their medians leave out the requests that the machine interrupted; their
//! telling is in no phase.

use std::cell::RefCell;

use super::abi;
use crate::host::{Host, MetricId, MetricKind, Phase};

use super::host::Envoy;

/// Clock reads that the cost of one is measured over.
const READS: u64 = 10_000;

const PHASES: [(Phase, &str); 10] = [
    (Phase::Headers, "headers"),
    (Phase::Body, "body"),
    (Phase::Scan, "scan"),
    (Phase::Hash, "hash"),
    (Phase::Snapshot, "snapshot"),
    (Phase::Page, "page"),
    (Phase::Choose, "choose"),
    (Phase::Steer, "steer"),
    (Phase::Account, "account"),
    (Phase::Response, "response"),
];

#[derive(Clone, Copy, Default)]
struct Lap {
    ns: u64,
    count: u64,
}

#[derive(Default)]
struct Laps {
    running: Option<(usize, u64)>,
    laps: [Lap; PHASES.len()],
    metrics: Vec<[Option<MetricId>; 2]>,
}

thread_local! {
    static LAPS: RefCell<Laps> = RefCell::default();
}

/// A phase begins, and with it ends the one before.
pub(super) fn begins(phase: Phase) {
    change(PHASES.iter().position(|(known, _)| *known == phase));
}

/// The callback returns: what comes now is not ours.
pub(super) fn pause() {
    change(None);
}

fn change(to: Option<usize>) {
    let now_ns = abi::now_ns();
    LAPS.with_borrow_mut(|laps| {
        if let Some((phase, since_ns)) = laps.running.take()
            && let Some(lap) = laps.laps.get_mut(phase)
        {
            lap.ns += now_ns.saturating_sub(since_ns);
            lap.count += 1;
        }
        laps.running = to.map(|phase| (phase, now_ns));
    });
}

/// Tells the times that have come together.
pub(super) fn tell() {
    LAPS.with_borrow_mut(|laps| {
        if laps.metrics.is_empty() {
            laps.metrics = define();
        }
        for (lap, [ns, count]) in laps.laps.iter_mut().zip(&laps.metrics) {
            if lap.count > 0 {
                crate::metrics::record(&Envoy, *ns, lap.ns);
                crate::metrics::add(&Envoy, *count, lap.count);
            }
            *lap = Lap::default();
        }
    });
}

/// Defines the metrics, and tells what a clock read costs.
fn define() -> Vec<[Option<MetricId>; 2]> {
    let begun_ns = abi::now_ns();
    (0..READS).for_each(|_| {
        abi::now_ns();
    });
    let read_ns = abi::now_ns().saturating_sub(begun_ns) / READS;
    let gauge = Envoy.define_metric(MetricKind::Gauge, "warmroute_clock_read_ns");
    crate::metrics::record(&Envoy, gauge, read_ns);
    let metric =
        |kind, what: &str, phase: &str| Envoy.define_metric(kind, &format!("warmroute_phase_{phase}_{what}"));
    let both =
        |phase| [metric(MetricKind::Histogram, "ns", phase), metric(MetricKind::Counter, "laps", phase)];
    PHASES.iter().map(|(_, phase)| both(phase)).collect()
}
