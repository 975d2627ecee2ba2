//! What goes into a sequence and what comes out.

use bytes::Bytes;

use super::applied::Applied;

/// A numbered batch, still encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its number.
    pub seq: u64,
    /// What it says.
    pub payload: Bytes,
}

/// What the caller is to do. Steps are done in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Apply a batch.
    Apply(Applied, Bytes),
    /// The batch that [`Sequence::resume`](super::Sequence::resume) named is the engine's: what is known up to it holds.
    Resumed,
    /// Forget all that is known of the worker.
    Reset(ResetCause),
    /// Ask the engine for its batches from this number on, and drop a replay that is still under way.
    Replay {
        /// The number of the first batch wanted.
        from: u64,
    },
    /// Count a gap.
    Gap(GapOutcome),
    /// Count a replay.
    Replayed(ReplayOutcome),
    /// The worker may miss batches that the engine still has: call `Sequence::retry` after a while.
    RetryLater,
}

/// Why a worker was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResetCause {
    /// The engine has started anew.
    Restart,
    /// Batches are lost.
    Gap,
    /// The connection was lost, and it cannot be told whether the same process answers now.
    Reconnect,
    /// A whole replay succeeds after one has failed: it takes the place of what is known.
    Recovery,
}

/// How a gap ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapOutcome {
    /// A replay closed it.
    Recovered,
    /// The missing batches are lost.
    Unrecovered,
}

/// How a replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplayOutcome {
    /// Everything that was asked for came.
    Complete,
    /// It ended in order, but began late or had holes.
    Partial,
    /// It did not end.
    Failed,
}

// === impl GapOutcome ===

impl GapOutcome {
    /// The outcome's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recovered => "recovered",
            Self::Unrecovered => "unrecovered",
        }
    }
}

// === impl ReplayOutcome ===

impl ReplayOutcome {
    /// The outcome's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

// === impl ResetCause ===

impl ResetCause {
    /// The cause's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Gap => "gap",
            Self::Reconnect => "reconnect",
            Self::Recovery => "recovery",
        }
    }
}
