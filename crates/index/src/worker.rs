//! Workers and what each calls its blocks.

use crate::event::{EngineHash, Group};
use crate::names::Names;
use crate::orphans::Orphans;
use crate::seats::SeatId;

/// What a worker is known by: an endpoint, and the data-parallel rank behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerIdentity {
    /// `ip:port`.
    pub address: String,
    /// The data-parallel rank.
    pub rank: u32,
}

/// A worker's handle, good for the life of the index: it outlives slots and generations and is never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub(crate) u64);

/// One worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) identity: WorkerIdentity,
    /// Its present incarnation.
    pub(crate) seat: SeatId,
    pub(crate) ledger: Ledger,
}

/// Everything that one incarnation of a worker has told. A name is in at most one of the two.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The blocks whose place is known.
    pub(crate) names: Names,
    /// The blocks whose place is not known yet.
    pub(crate) orphans: Orphans,
}

/// What a worker calls a block: the same hash may mean another copy in another group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockName {
    pub(crate) group: Group,
    pub(crate) hash: EngineHash,
}

// === impl Ledger ===

impl Ledger {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.orphans.is_empty()
    }
}
