//! What is counted for each rank of each worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;
use warmroute_index::event::Event;
use warmroute_index::{Applied, EventError};
use warmroute_wire::Batch;
use warmroute_wire::sequence::{GapOutcome, ReplayOutcome, ResetCause};

use super::labels::{EventLabels, OutcomeLabels, ReasonLabels, StateLabels, WorkerLabels};
use crate::gauges::Gauges;
use crate::inspect::Received;
use crate::pool::Refusal;

/// The states that an engine's requests are told by.
const ENGINE_REQUESTS: [&str; 3] = ["running", "waiting", "unbooked"];

/// The metrics of all workers.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerFamilies {
    frames: Family<WorkerLabels, Counter>,
    undecodable: Family<WorkerLabels, Counter>,
    events: Family<EventLabels, Counter>,
    skipped: Family<ReasonLabels, Counter>,
    bad: Family<ReasonLabels, Counter>,
    blocks: Family<OutcomeLabels, Counter>,
    gaps: Family<OutcomeLabels, Counter>,
    replays: Family<OutcomeLabels, Counter>,
    resets: Family<ReasonLabels, Counter>,
    snapshots: Family<OutcomeLabels, Counter>,
    connected: Family<WorkerLabels, Gauge>,
    refused: Family<ReasonLabels, Gauge>,
    health_checks: Family<OutcomeLabels, Counter>,
    healthy: Family<WorkerLabels, Gauge>,
    last_event_age: Family<WorkerLabels, Gauge<f64, AtomicU64>>,
    silent: Family<WorkerLabels, Gauge>,
    scrapes: Family<OutcomeLabels, Counter>,
    requests: Family<StateLabels, Gauge>,
}

/// The metrics of one rank.
#[derive(Clone, Debug)]
pub struct WorkerMetrics {
    families: WorkerFamilies,
    labels: WorkerLabels,
    frames: Counter,
    last_event: Arc<LastEvent>,
    healthy: Arc<AtomicBool>,
}

/// A worker that is healthy and has not said anything for so long since it is known is counted as silent. One that has never
/// had a request is too: nothing else tells it from one whose events are off, or go elsewhere.
const SILENT_AFTER: Duration = Duration::from_secs(60);

/// When the last message came, in milliseconds after `epoch`; negative where none has.
#[derive(Debug)]
struct LastEvent {
    epoch: Instant,
    millis: AtomicI64,
}

// === impl WorkerFamilies ===

impl WorkerFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        registry.register("frames", "Messages of the engine, live and replayed", all.frames.clone());
        registry.register(
            "undecodable_frames",
            "Messages that are no batch of events",
            all.undecodable.clone(),
        );
        registry.register("events", "Events by kind and by whether the index took them", all.events.clone());
        registry.register(
            "skipped_events",
            "Events that are not for the index, by reason",
            all.skipped.clone(),
        );
        registry.register(
            "bad_events",
            "Events that could not be read or were refused, by reason",
            all.bad.clone(),
        );
        registry.register(
            "event_blocks",
            "Blocks that events told of, by what became of them",
            all.blocks.clone(),
        );
        registry.register(
            "gaps",
            "Gaps in the engine's sequence numbers, by how they ended",
            all.gaps.clone(),
        );
        registry.register("replays", "Replays, by how they ended", all.replays.clone());
        registry.register(
            "resets",
            "Times that all known of a worker became void, by reason",
            all.resets.clone(),
        );
        registry.register(
            "snapshot_workers",
            "Workers of a snapshot, by what became of what it said: resumed, void",
            all.snapshots.clone(),
        );
        registry.register(
            "worker_connected",
            "Whether the connection to the engine's events stands",
            all.connected.clone(),
        );
        registry.register("health_checks", "Health checks, by outcome", all.health_checks.clone());
        registry.register(
            "worker_healthy",
            "Whether the worker answers its health checks; absent before that is known",
            all.healthy.clone(),
        );
        registry.register(
            "worker_refused",
            "Whether nothing of the worker is indexed, by reason",
            all.refused.clone(),
        );
        registry.register_with_unit(
            "last_event_age",
            "Time since the engine's last message; absent before the first",
            Unit::Seconds,
            all.last_event_age.clone(),
        );
        registry.register(
            "worker_silent",
            "Whether a healthy worker has never sent a message, a minute and more after it is known",
            all.silent.clone(),
        );
        registry.register("gauge_scrapes", "Looks at the engine's gauges, by outcome", all.scrapes.clone());
        registry.register(
            "engine_requests",
            "Requests of the engine by its own word: running, waiting; and those of them that no proxy reports: unbooked",
            all.requests.clone(),
        );
        all
    }

    pub(super) fn of(&self, pool: &str, worker: &str, rank: u16) -> WorkerMetrics {
        let labels = WorkerLabels { pool: pool.to_owned(), worker: worker.to_owned(), rank };
        // Series that are there from the start: their absence would look like health.
        drop(self.undecodable.get_or_create(&labels));
        drop(self.connected.get_or_create(&labels));
        drop(self.silent.get_or_create(&labels));
        for reason in Refusal::REASONS {
            drop(self.refused.get_or_create(&ReasonLabels { worker: labels.clone(), reason }));
        }
        let frames = self.frames.get_or_create_owned(&labels);
        let last_event = LastEvent { epoch: Instant::now(), millis: AtomicI64::new(-1) };
        let (last_event, healthy) = (Arc::new(last_event), Arc::default());
        WorkerMetrics { families: self.clone(), labels, frames, last_event, healthy }
    }
}

// === impl WorkerMetrics ===

impl WorkerMetrics {
    /// A message came.
    pub fn frame(&self) {
        self.frames.inc();
        self.last_event.set();
    }

    /// A message was no batch.
    pub fn undecodable(&self) {
        self.families.undecodable.get_or_create(&self.labels).inc();
    }

    /// A batch was read: counts what was left out of it.
    pub fn batch(&self, batch: &Batch) {
        for skipped in &batch.skipped {
            self.families.skipped.get_or_create(&self.reason(skipped.as_str())).inc();
        }
        for bad in &batch.bad {
            self.families.bad.get_or_create(&self.reason(bad.as_str())).inc();
        }
    }

    /// The index took an event, or refused it.
    pub fn event(&self, event: &Event, result: &Result<Applied, EventError>) {
        let kind = match event {
            Event::Stored(_) => "stored",
            Event::Removed(_) => "removed",
            Event::Cleared => "cleared",
        };
        let outcome = if result.is_ok() { "applied" } else { "refused" };
        let labels = EventLabels { worker: self.labels.clone(), kind, result: outcome };
        self.families.events.get_or_create(&labels).inc();
        match result {
            Ok(applied) => self.blocks(applied),
            Err(error) => {
                self.families.bad.get_or_create(&self.reason(refusal(error))).inc();
            }
        }
    }

    fn blocks(&self, applied: &Applied) {
        for (what, blocks) in [
            ("stored", applied.stored),
            ("removed", applied.removed),
            ("orphaned", applied.orphaned),
            ("attached", applied.attached),
            ("dropped_orphan", applied.dropped_orphans),
            ("renamed", applied.renamed),
            ("unknown_removed", applied.unknown_removed),
            ("skipped", applied.skipped),
            ("cleared", applied.cleared),
        ] {
            if blocks > 0 {
                self.families.blocks.get_or_create(&self.outcome(what)).inc_by(u64::from(blocks));
            }
        }
    }

    /// A gap ended.
    pub fn gap(&self, outcome: GapOutcome) {
        self.families.gaps.get_or_create(&self.outcome(outcome.as_str())).inc();
    }

    /// A replay ended.
    pub fn replay(&self, outcome: ReplayOutcome) {
        self.families.replays.get_or_create(&self.outcome(outcome.as_str())).inc();
    }

    /// All that was known became void.
    pub fn reset(&self, cause: ResetCause) {
        self.families.resets.get_or_create(&self.reason(cause.as_str())).inc();
    }

    /// What a snapshot said of it holds, or is void.
    pub fn snapshot(&self, holds: bool) {
        let outcome = if holds { "resumed" } else { "void" };
        self.families.snapshots.get_or_create(&self.outcome(outcome)).inc();
    }

    /// The connection stands, or is lost.
    pub fn connected(&self, connected: bool) {
        self.families.connected.get_or_create(&self.labels).set(i64::from(connected));
    }

    /// It has answered a health check well, or not.
    pub fn health_check(&self, is_well: bool) {
        let outcome = if is_well { "ok" } else { "failed" };
        self.families.health_checks.get_or_create(&self.outcome(outcome)).inc();
    }

    /// It is healthy now, or no longer.
    pub fn healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Ordering::Relaxed);
        self.families.healthy.get_or_create(&self.labels).set(i64::from(healthy));
    }

    /// Its engine was asked for its gauges.
    pub fn scrape(&self, is_well: bool) {
        let outcome = if is_well { "ok" } else { "failed" };
        self.families.scrapes.get_or_create(&self.outcome(outcome)).inc();
    }

    /// Its engine has said what it has, of which so many requests are not booked.
    pub fn engine(&self, gauges: Gauges, unbooked: u32) {
        for (state, count) in ENGINE_REQUESTS.into_iter().zip([gauges.running, gauges.waiting, unbooked]) {
            self.families.requests.get_or_create(&self.state(state)).set(i64::from(count));
        }
    }

    /// Its engine does not say any more what it has.
    pub fn engine_untold(&self) {
        for state in ENGINE_REQUESTS {
            self.families.requests.remove(&self.state(state));
        }
    }

    /// Nothing of it is indexed, for this reason, or no longer so.
    pub fn refused(&self, refusal: Option<Refusal>) {
        for reason in Refusal::REASONS {
            let is_so = refusal.is_some_and(|refusal| refusal.as_str() == reason);
            self.families.refused.get_or_create(&self.reason(reason)).set(i64::from(is_so));
        }
    }

    /// It is gone: what says how it is now is taken back. What was counted of it stays.
    pub fn leave(&self) {
        self.families.connected.remove(&self.labels);
        self.families.healthy.remove(&self.labels);
        self.families.last_event_age.remove(&self.labels);
        self.families.silent.remove(&self.labels);
        self.engine_untold();
        for reason in Refusal::REASONS {
            self.families.refused.remove(&self.reason(reason));
        }
    }

    /// What has been received of it.
    pub fn received(&self) -> Received {
        let all = &self.families;
        let gaps = |outcome: GapOutcome| all.gaps.get_or_create(&self.outcome(outcome.as_str())).get();
        let replays =
            |outcome: ReplayOutcome| all.replays.get_or_create(&self.outcome(outcome.as_str())).get();
        Received {
            frames: self.frames.get(),
            undecodable_frames: all.undecodable.get_or_create(&self.labels).get(),
            gaps_recovered: gaps(GapOutcome::Recovered),
            gaps_unrecovered: gaps(GapOutcome::Unrecovered),
            replays_complete: replays(ReplayOutcome::Complete),
            replays_partial: replays(ReplayOutcome::Partial),
            replays_failed: replays(ReplayOutcome::Failed),
            last_event_age_seconds: self.last_event.age_seconds(),
        }
    }

    /// Brings the ages up to now.
    pub fn refresh(&self) {
        self.refresh_at(Instant::now());
    }

    fn refresh_at(&self, now: Instant) {
        let known_for = now.saturating_duration_since(self.last_event.epoch);
        let silent = self.healthy.load(Ordering::Relaxed)
            && self.last_event.age_seconds().is_none()
            && known_for >= SILENT_AFTER;
        self.families.silent.get_or_create(&self.labels).set(i64::from(silent));
        if let Some(age) = self.last_event.age_seconds() {
            self.families.last_event_age.get_or_create(&self.labels).set(age);
        }
    }

    fn outcome(&self, outcome: &'static str) -> OutcomeLabels {
        OutcomeLabels { worker: self.labels.clone(), outcome }
    }

    fn state(&self, state: &'static str) -> StateLabels {
        StateLabels { worker: self.labels.clone(), state }
    }

    fn reason(&self, reason: &'static str) -> ReasonLabels {
        ReasonLabels { worker: self.labels.clone(), reason }
    }
}

fn refusal(error: &EventError) -> &'static str {
    match error {
        EventError::UnknownWorker => "unknown_worker",
        EventError::BlockSize { .. } => "block_size",
        EventError::Misaligned { .. } => "misaligned",
        EventError::Media { .. } => "media",
        EventError::Left { .. } => "left",
        EventError::Locals { .. } => "locals",
    }
}

// === impl LastEvent ===

impl LastEvent {
    fn set(&self) {
        let millis = i64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }

    fn age_seconds(&self) -> Option<f64> {
        let last = u64::try_from(self.millis.load(Ordering::Relaxed)).ok()?;
        let last = Duration::from_millis(last);
        Some(self.epoch.elapsed().saturating_sub(last).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn a_worker_that_serves_and_says_nothing_is_silent_until_it_says_something() {
        let all = Metrics::new();
        let worker = all.worker("p", "10.0.0.1:8000", 0);
        let silent = |after: Duration| {
            worker.refresh_at(worker.last_event.epoch + after);
            let text = all.encode().unwrap();
            let line =
                text.lines().find(|line| line.starts_with("warmroute_collector_worker_silent{")).unwrap();
            line.ends_with(" 1")
        };
        // Whether it serves is not known.
        assert!(!silent(SILENT_AFTER * 2));
        worker.healthy(true);
        assert!(!silent(SILENT_AFTER / 2));
        assert!(silent(SILENT_AFTER));
        worker.healthy(false);
        assert!(!silent(SILENT_AFTER));
        worker.healthy(true);
        worker.frame();
        assert!(!silent(SILENT_AFTER * 2));
        assert!(
            all.encode().unwrap().contains("worker_silent{pool=\"p\",worker=\"10.0.0.1:8000\",rank=\"0\"} 0")
        );
    }
}
