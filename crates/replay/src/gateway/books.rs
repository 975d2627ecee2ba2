//! The requests in flight, as the filter's ledger has them.

use std::collections::HashMap;
use std::time::Duration;

use warmroute_routing::choose::Load;
use warmroute_routing::progress::Progress;

use super::micros;
use crate::workload::Request;

/// What each worker has in hand.
pub(crate) struct Books {
    loads: Vec<Load>,
    progress: Vec<Progress>,
    bookings: HashMap<u64, Booking>,
}

#[derive(Clone, Copy)]
struct Booking {
    worker: usize,
    prefill_tokens: u64,
    blocks: u64,
}

// === impl Books ===

impl Books {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            loads: vec![Load::default(); workers],
            progress: vec![Progress::default(); workers],
            bookings: HashMap::new(),
        }
    }

    /// What each worker has in hand by now, as warmroute weighs it: without what it has computed, by its pace.
    pub(crate) fn left(&self, now: Duration) -> impl Iterator<Item = Load> {
        self.loads.iter().zip(&self.progress).map(move |(load, progress)| Load {
            prefill_tokens: progress.left(load.prefill_tokens, micros(now)),
            ..*load
        })
    }

    /// What each worker has in hand, each prompt whole until its first token.
    pub(crate) fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Books a request when it is sent.
    pub(crate) fn book(
        &mut self,
        id: u64,
        worker: usize,
        request: &Request,
        cached_blocks: u32,
        now: Duration,
    ) {
        let cached_tokens = u64::from(cached_blocks) * u64::from(request.prompt.block_size);
        let booking = Booking {
            worker,
            prefill_tokens: request.prompt.tokens.saturating_sub(cached_tokens),
            blocks: u64::from(request.prompt.blocks),
        };
        if let Some(load) = self.loads.get_mut(worker) {
            load.requests += 1;
            load.prefill_tokens += booking.prefill_tokens;
            load.blocks += booking.blocks;
        }
        if let Some(progress) = self.progress.get_mut(worker) {
            progress.sent(micros(now));
        }
        self.bookings.insert(id, booking);
    }

    /// Takes the prompt's tokens off, at the first token of the answer.
    pub(crate) fn prefill_done(&mut self, id: u64, now: Duration) {
        let Some(booking) = self.bookings.get_mut(&id) else { return };
        let computed = std::mem::take(&mut booking.prefill_tokens);
        if let Some(load) = self.loads.get_mut(booking.worker) {
            load.prefill_tokens -= computed;
        }
        if let Some(progress) = self.progress.get_mut(booking.worker) {
            progress.answered(computed, micros(now));
        }
    }

    /// Takes the request off.
    pub(crate) fn release(&mut self, id: u64) {
        let Some(booking) = self.bookings.remove(&id) else { return };
        if let Some(load) = self.loads.get_mut(booking.worker) {
            load.requests -= 1;
            load.prefill_tokens -= booking.prefill_tokens;
            load.blocks -= booking.blocks;
        }
    }
}
