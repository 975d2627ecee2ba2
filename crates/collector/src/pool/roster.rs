//! The workers of a pool, by their place.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use warmroute_index::{Index, WorkerId};
use warmroute_routing::pool::{Worker, WorkerState};
use warmroute_wire::sequence::Applied;

use super::Refusal;
use super::crew::Joining;
use crate::metrics::WorkerMetrics;
use crate::snapshot::SavedWorker;

/// The workers. A place is given once: what is told of one that has left reaches nobody.
#[derive(Debug, Default)]
pub(super) struct Roster {
    rows: BTreeMap<u64, Row>,
    places: BTreeMap<WorkerId, u64>,
}

/// One rank of a worker.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: WorkerId,
    pub(super) address: SocketAddr,
    pub(super) rank: u16,
    pub(super) metrics: WorkerMetrics,
    /// Whether the connection to its events stands; `None` before the first.
    pub(super) connected: Option<bool>,
    /// Whether it answers its health checks; `None` before that is known.
    pub(super) healthy: Option<bool>,
    settled: bool,
    /// The last batch that the index knows of it.
    pub(super) last: Option<Applied>,
    /// What a snapshot says of it, as long as its engine has not shown whether that holds.
    pub(super) saved: Option<SavedWorker>,
    /// Adapters have been seen whose removals do not tell them: what is known is not all in the index.
    pub(super) untold_adapters: bool,
    /// Why nothing of it is indexed.
    pub(super) refusal: Option<Refusal>,
    /// Whether a block of the pool's size has come since the last reset.
    pub(super) fits: bool,
    /// Whether the log has told of an event that was refused.
    complained: bool,
}

// === impl Roster ===

impl Roster {
    /// Takes in a worker that the index knows as `id`.
    pub(super) fn join(&mut self, joining: Joining, id: WorkerId) {
        let Joining { place, address, rank, metrics, saved, .. } = joining;
        let row = Row {
            id,
            address,
            rank,
            metrics,
            connected: None,
            healthy: None,
            settled: false,
            last: None,
            saved,
            untold_adapters: false,
            refusal: None,
            fits: false,
            complained: false,
        };
        self.rows.insert(place, row);
        self.places.insert(id, place);
    }

    /// Lets a worker go.
    pub(super) fn leave(&mut self, place: u64) -> Option<Row> {
        let row = self.rows.remove(&place)?;
        self.places.remove(&row.id);
        Some(row)
    }

    /// The worker at a place, to change it.
    pub(super) fn get_mut(&mut self, place: u64) -> Option<&mut Row> {
        self.rows.get_mut(&place)
    }

    /// The worker at a place.
    pub(super) fn get(&self, place: u64) -> Option<&Row> {
        self.rows.get(&place)
    }

    /// Every place.
    pub(super) fn places(&self) -> Vec<u64> {
        self.rows.keys().copied().collect()
    }

    /// The workers, in the order of their places.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Workers whose events are connected.
    pub(super) fn up(&self) -> usize {
        self.rows().filter(|row| row.connected == Some(true)).count()
    }

    /// The names of the workers that have not settled.
    pub(super) fn missing(&self) -> Arc<[String]> {
        self.rows().filter(|row| !row.settled).map(Row::name).collect()
    }

    /// The workers of which nothing is indexed, and why.
    pub(super) fn refused(&self) -> Arc<[(String, Refusal)]> {
        self.rows().filter_map(|row| Some((row.name(), row.refusal?))).collect()
    }

    /// The table that is published.
    pub(super) fn published(&self, index: &Index) -> Vec<Worker> {
        let row_of = |id| self.rows.get(self.places.get(&id)?);
        let mut workers: Vec<_> = index
            .workers()
            .filter_map(|(id, _, slot)| {
                let row = row_of(id)?;
                Some(Worker { slot, address: row.address, rank: u32::from(row.rank), state: row.state() })
            })
            .collect();
        workers.sort_by_key(|worker| worker.slot);
        workers
    }
}

// === impl Row ===

impl Row {
    /// Its name in logs.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.address, self.rank)
    }

    /// A connection that stood and is lost is the engine's end, or a network that does not reach it. One that never stood
    /// may be a wrong endpoint: that does not speak against the engine. Health checks speak for themselves, in addition.
    pub(super) fn state(&self) -> WorkerState {
        if self.connected == Some(false) || self.healthy == Some(false) {
            WorkerState::Down
        } else {
            WorkerState::Up
        }
    }

    /// Notes something of it. Says whether its published state changed.
    pub(super) fn note(&mut self, note: impl FnOnce(&mut Self)) -> bool {
        let before = self.state();
        note(self);
        before != self.state()
    }

    /// Notes that all that can be known of it is known.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    /// Whether this is the first complaint about it.
    pub(super) fn first_complaint(&mut self) -> bool {
        !std::mem::replace(&mut self.complained, true)
    }

    /// Nothing is known of it any more: perhaps another process answers now.
    pub(super) fn reset(&mut self) {
        if self.saved.take().is_some() {
            self.metrics.snapshot(false);
        }
        self.last = None;
        self.untold_adapters = false;
        self.fits = false;
        self.refuse(None);
    }

    /// Nothing of it is indexed, or no longer so. Says whether that is new.
    pub(super) fn refuse(&mut self, refusal: Option<Refusal>) -> bool {
        if self.refusal == refusal {
            return false;
        }
        self.refusal = refusal;
        self.metrics.refused(refusal);
        true
    }

    /// A block of the pool's size has come. Those of other sizes are left out, but the worker is indexed.
    pub(super) fn has_fitted(&mut self) {
        self.fits = true;
        if matches!(self.refusal, Some(Refusal::BlockSize { .. })) {
            self.refuse(None);
        }
    }
}
