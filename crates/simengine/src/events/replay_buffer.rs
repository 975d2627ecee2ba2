//! The last batches, for those who missed them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// One published batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Counts up by one from 0 for each batch of the process.
    pub(super) seq: u64,
    pub(super) payload: Bytes,
}

/// Keeps the newest batches, at most a fixed number.
#[derive(Debug)]
pub(super) struct ReplayBuffer {
    capacity: usize,
    batches: Mutex<VecDeque<Batch>>,
}

// === impl ReplayBuffer ===

impl ReplayBuffer {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, batches: Mutex::new(VecDeque::new()) }
    }

    pub(super) fn push(&self, batch: Batch) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.push_back(batch);
        while batches.len() > self.capacity {
            batches.pop_front();
        }
    }

    /// The kept batches from `start` on, oldest first. Nothing tells that older ones have been dropped, as in vLLM.
    pub(super) fn since(&self, start: u64) -> Vec<Batch> {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.iter().filter(|batch| batch.seq >= start).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest() {
        let buffer = ReplayBuffer::new(2);
        for seq in 0..4 {
            buffer.push(Batch { seq, payload: Bytes::new() });
        }
        let seqs = |start| buffer.since(start).iter().map(|batch| batch.seq).collect::<Vec<_>>();
        assert_eq!(seqs(0), [2, 3]);
        assert_eq!(seqs(3), [3]);
        assert_eq!(seqs(9), [0_u64; 0]);
    }
}
