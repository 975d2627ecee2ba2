//! Batches that were applied, by number and fingerprint.

use std::collections::VecDeque;

use xxhash_rust::xxh3::xxh3_64;

use super::step::Frame;

/// A batch that was applied: its number, and what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its number.
    pub seq: u64,
    /// XXH3 of its payload.
    pub fingerprint: u64,
}

/// The batches that replays brought since the live stream was last in step, ascending.
#[derive(Debug, Default)]
pub(super) struct Replayed(VecDeque<Applied>);

/// Batches that are remembered. Older ones fall out: the live stream would have to be behind by this many.
const MAX_REPLAYED: usize = 1 << 17;

// === impl Applied ===

impl Applied {
    pub(super) fn of(frame: &Frame) -> Self {
        Self { seq: frame.seq, fingerprint: xxh3_64(&frame.payload) }
    }

    /// Whether a batch is this one. Batches hold the time at which they were made: no two are alike.
    pub(super) fn is(self, frame: &Frame) -> bool {
        self.seq == frame.seq && self.fingerprint == xxh3_64(&frame.payload)
    }
}

// === impl Replayed ===

impl Replayed {
    pub(super) fn push(&mut self, frame: &Frame) {
        if self.0.len() == MAX_REPLAYED {
            self.0.pop_front();
        }
        self.0.push_back(Applied::of(frame));
    }

    /// Whether a live batch was replayed. The live stream is in order: what is behind this batch is forgotten.
    pub(super) fn has(&mut self, frame: &Frame) -> bool {
        while self.0.pop_front_if(|replayed| replayed.seq < frame.seq).is_some() {}
        self.0.front().is_some_and(|replayed| replayed.is(frame))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
