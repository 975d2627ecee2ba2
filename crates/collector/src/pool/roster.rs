//! The workers of a pool, by their place in the configuration.

use std::net::SocketAddr;
use std::sync::Arc;

use warmroute_index::{Index, WorkerId, WorkerIdentity};
use warmroute_routing::pool::{Worker, WorkerState};

use crate::config::PoolConfig;

/// The workers.
#[derive(Debug)]
pub(super) struct Roster {
    rows: Vec<Row>,
}

/// One rank of a worker.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: WorkerId,
    address: SocketAddr,
    rank: u32,
    /// Whether the connection to its events stands; `None` before the first.
    connected: Option<bool>,
    settled: bool,
    /// Whether the log has told of an event that was refused.
    complained: bool,
}

// === impl Roster ===

impl Roster {
    /// Adds the workers of a configuration to an index.
    ///
    /// The configuration has far fewer workers than an index has slots, and none twice: all of them are added.
    pub(super) fn new(config: &PoolConfig, index: &mut Index) -> Self {
        let ranks = config
            .workers
            .iter()
            .flat_map(|worker| (0..u32::from(worker.ranks)).map(|rank| (worker.address, rank)));
        let rows = ranks.filter_map(|(address, rank)| {
            let id = index.add_worker(WorkerIdentity { address: address.to_string(), rank }).ok()?;
            Some(Row { id, address, rank, connected: None, settled: false, complained: false })
        });
        Self { rows: rows.collect() }
    }

    /// The worker at a place.
    pub(super) fn get(&self, place: usize) -> Option<&Row> {
        self.rows.get(place)
    }

    /// Notes whether a worker is connected. Says whether its published state changed.
    pub(super) fn connected(&mut self, place: usize, connected: bool) -> bool {
        let Some(row) = self.rows.get_mut(place) else { return false };
        let before = row.state();
        row.connected = Some(connected);
        before != row.state()
    }

    /// Notes that all that can be known of a worker is known.
    pub(super) fn settled(&mut self, place: usize) {
        if let Some(row) = self.rows.get_mut(place) {
            row.settled = true;
        }
    }

    /// Whether this is the first complaint about a worker.
    pub(super) fn first_complaint(&mut self, place: usize) -> bool {
        self.rows.get_mut(place).is_some_and(|row| !std::mem::replace(&mut row.complained, true))
    }

    /// The name of a worker in logs.
    pub(super) fn name(&self, place: usize) -> String {
        self.rows.get(place).map(Row::name).unwrap_or_default()
    }

    /// Workers whose events are connected.
    pub(super) fn up(&self) -> usize {
        self.rows.iter().filter(|row| row.connected == Some(true)).count()
    }

    /// The names of the workers that have not settled.
    pub(super) fn missing(&self) -> Arc<[String]> {
        let missing = self.rows.iter().filter(|row| !row.settled);
        missing.map(Row::name).collect()
    }

    /// The table that is published.
    pub(super) fn published(&self, index: &Index) -> Vec<Worker> {
        // Rows were added in the order of their names.
        let row_of = |id| self.rows.get(self.rows.binary_search_by_key(&id, |row| row.id).ok()?);
        let mut workers: Vec<_> = index
            .workers()
            .filter_map(|(id, _, slot)| {
                let row = row_of(id)?;
                Some(Worker { slot, address: row.address, rank: row.rank, state: row.state() })
            })
            .collect();
        workers.sort_by_key(|worker| worker.slot);
        workers
    }
}

// === impl Row ===

impl Row {
    fn name(&self) -> String {
        format!("{}/{}", self.address, self.rank)
    }

    /// A connection that stood and is lost is the engine's end, or a network that does not reach it. One that never stood
    /// may be a wrong endpoint: that does not speak against the engine.
    fn state(&self) -> WorkerState {
        if self.connected == Some(false) { WorkerState::Down } else { WorkerState::Up }
    }
}
