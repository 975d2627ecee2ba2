//! Full knowledge: each request goes where its first token comes earliest.
//!
//! It knows every cache as it is, without delay, what waits there and what that will leave behind, and how fast the
//! engines are. It does not know the future: each choice is the best for the request that is made for.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use warmroute_routing::hash::SequenceHash;
use warmroute_simengine::cache::CacheEvent;
use warmroute_simengine::scheduler::TimeModel;

use super::{Arrival, Choice, Router, least};
use crate::gateway::{Gateway, LiveIndex};

/// Everything about every worker.
pub(super) struct Ideal {
    index: LiveIndex,
    time: TimeModel,
    workers: Vec<Device>,
    waiting: HashMap<u64, Waiting>,
}

/// A worker's prefill device.
#[derive(Clone, Debug, Default)]
struct Device {
    /// When it has computed all that it was sent, as was foreseen.
    free_at: Duration,
    /// How much later than foreseen it is.
    late: Duration,
    /// The blocks of what it was sent and has not answered.
    coming: HashMap<SequenceHash, u32>,
}

struct Waiting {
    worker: usize,
    /// By the foresight of its worker, to which what it is late by comes in addition.
    computed_at: Duration,
    hashes: Vec<SequenceHash>,
}

// === impl Ideal ===

impl Ideal {
    pub(super) fn new(workers: usize, block_size: u32, time: TimeModel) -> Result<Self> {
        let index = LiveIndex::new(workers, block_size)?;
        Ok(Self { index, time, workers: vec![Device::default(); workers], waiting: HashMap::new() })
    }
}

impl Router for Ideal {
    fn route(&mut self, arrival: &Arrival<'_>, _: &mut Gateway) -> Choice {
        let request = arrival.request;
        let block_size = u64::from(request.prompt.block_size.max(1));
        // An engine computes at least the last token.
        let most = request.prompt.tokens.saturating_sub(1) / block_size;
        let held = self.index.depths(&request.hashes);
        let plans = self.workers.iter().zip(&held).map(|(worker, held)| {
            let coming = request.hashes.iter().skip(held.any() as usize);
            let coming = coming.take_while(|hash| worker.coming.contains_key(hash)).count();
            let blocks = (u64::from(held.any()) + coming as u64).min(most);
            let uncached = request.prompt.tokens.saturating_sub(blocks * block_size);
            let end = (worker.free_at + worker.late).max(arrival.now) + self.time.prefill(uncached as usize);
            (end, uncached, worker.coming.len(), blocks)
        });
        let plans: Vec<_> = plans.collect();
        let worker = least(plans.iter());
        let Some((end, _, _, blocks)) = plans.get(worker).copied() else { return Choice::default() };
        if let Some(device) = self.workers.get_mut(worker) {
            device.free_at = end.saturating_sub(device.late);
            request.hashes.iter().for_each(|hash| *device.coming.entry(*hash).or_default() += 1);
        }
        let computed_at = self.workers.get(worker).map_or(end, |device| device.free_at);
        let waiting = Waiting { worker, computed_at, hashes: request.hashes.clone() };
        self.waiting.insert(arrival.id, waiting);
        Choice { worker, cached_blocks: blocks as u32 }
    }

    fn stored(&mut self, worker: usize, events: &[CacheEvent]) {
        // What cannot be true of an engine's own events is no knowledge.
        let _ = self.index.apply(worker, events);
    }

    fn answered(&mut self, id: u64, now: Duration) {
        let Some(Waiting { worker, computed_at, hashes }) = self.waiting.remove(&id) else { return };
        let Some(device) = self.workers.get_mut(worker) else { return };
        for hash in hashes {
            if let Some(requests) = device.coming.get_mut(&hash) {
                *requests -= 1;
                if *requests == 0 {
                    device.coming.remove(&hash);
                }
            }
        }
        // Where an engine had no room at first, all that waits behind comes later, too.
        device.late = now.saturating_sub(self.time.base).saturating_sub(computed_at);
    }
}
