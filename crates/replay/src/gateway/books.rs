//! The requests in flight, as the filter's ledger has them.

use std::collections::HashMap;

use warmroute_routing::choose::Load;

use crate::workload::Request;

/// What each worker has in hand.
pub(crate) struct Books {
    loads: Vec<Load>,
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
        Self { loads: vec![Load::default(); workers], bookings: HashMap::new() }
    }

    pub(crate) fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Books a request when it is sent.
    pub(crate) fn book(&mut self, id: u64, worker: usize, request: &Request, cached_blocks: u32) {
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
        self.bookings.insert(id, booking);
    }

    /// Takes the prompt's tokens off, at the first token of the answer.
    pub(crate) fn prefill_done(&mut self, id: u64) {
        let Some(booking) = self.bookings.get_mut(&id) else { return };
        if let Some(load) = self.loads.get_mut(booking.worker) {
            load.prefill_tokens -= std::mem::take(&mut booking.prefill_tokens);
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
