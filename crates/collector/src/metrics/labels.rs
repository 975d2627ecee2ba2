//! What tells the series of a metric apart.

use prometheus_client::encoding::EncodeLabelSet;

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PoolLabels {
    pub(super) pool: String,
}

/// How something ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResultLabels {
    pub(super) result: &'static str,
}

/// A pool, and how something ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PoolResultLabels {
    pub(super) pool: String,
    pub(super) result: &'static str,
}

/// A pool, what tells of its workers, and how asking it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DiscoveryLabels {
    pub(super) pool: String,
    pub(super) source: &'static str,
    pub(super) outcome: &'static str,
}

/// A rank of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WorkerLabels {
    pub(super) pool: String,
    pub(super) worker: String,
    pub(super) rank: u16,
}

/// A rank of a worker, and why something of it was left out or forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReasonLabels {
    #[prometheus(flatten)]
    pub(super) worker: WorkerLabels,
    pub(super) reason: &'static str,
}

/// A rank of a worker, and how something ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    #[prometheus(flatten)]
    pub(super) worker: WorkerLabels,
    pub(super) outcome: &'static str,
}

/// A rank of a worker, and where requests stand in its engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StateLabels {
    #[prometheus(flatten)]
    pub(super) worker: WorkerLabels,
    pub(super) state: &'static str,
}

/// A rank of a worker, and a kind of event that was applied or refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EventLabels {
    #[prometheus(flatten)]
    pub(super) worker: WorkerLabels,
    pub(super) kind: &'static str,
    pub(super) result: &'static str,
}
