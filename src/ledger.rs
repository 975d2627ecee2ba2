//! What each worker has in hand of the requests that this VM sent.

use std::collections::HashMap;
use std::net::SocketAddr;

use warmroute_routing::choose::Load;

/// The load by endpoint. An endpoint keeps its place for good: there are as many as the pools have had workers.
#[derive(Debug, Default)]
pub struct Ledger {
    places: HashMap<SocketAddr, usize>,
    loads: Vec<Load>,
}

/// An endpoint's place in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

/// A request that is booked to an endpoint until it is released.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a booking that is not released stays in the books"]
pub struct Booking {
    place: Place,
    work: Work,
}

/// What a request asks of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Prompt tokens that have to be computed.
    pub prefill_tokens: u64,
    /// Blocks of the prompt, cached or not.
    pub blocks: u64,
}

// === impl Ledger ===

impl Ledger {
    /// The place of an endpoint; a new endpoint gets one.
    pub fn place(&mut self, address: SocketAddr) -> Place {
        let loads = &mut self.loads;
        Place(*self.places.entry(address).or_insert_with(|| {
            loads.push(Load::default());
            loads.len() - 1
        }))
    }

    /// What the endpoint has in hand.
    pub fn load(&self, place: Place) -> Load {
        self.loads.get(place.0).copied().unwrap_or_default()
    }

    /// Books a request to an endpoint.
    pub fn book(&mut self, place: Place, work: Work) -> Booking {
        if let Some(load) = self.loads.get_mut(place.0) {
            load.requests = load.requests.saturating_add(1);
            load.prefill_tokens = load.prefill_tokens.saturating_add(work.prefill_tokens);
            load.blocks = load.blocks.saturating_add(work.blocks);
        }
        Booking { place, work }
    }

    /// Puts another number of tokens to compute in place of the one that was expected. Nothing, once they are computed.
    pub fn correct(&mut self, booking: &mut Booking, prefill_tokens: u64) {
        let expected = &mut booking.work.prefill_tokens;
        let Some(load) = self.loads.get_mut(booking.place.0).filter(|_| *expected > 0) else { return };
        load.prefill_tokens = load.prefill_tokens.saturating_sub(*expected).saturating_add(prefill_tokens);
        *expected = prefill_tokens;
    }

    /// Takes the prompt's tokens off the books: the first answer is there, so they are computed.
    pub fn prefill_done(&mut self, booking: &mut Booking) {
        let computed = std::mem::take(&mut booking.work.prefill_tokens);
        if let Some(load) = self.loads.get_mut(booking.place.0) {
            load.prefill_tokens = load.prefill_tokens.saturating_sub(computed);
        }
    }

    /// Takes the request off the books.
    #[allow(clippy::needless_pass_by_value, reason = "a booking is released once: it is consumed")]
    pub fn release(&mut self, booking: Booking) {
        let Booking { place, work } = booking;
        if let Some(load) = self.loads.get_mut(place.0) {
            load.requests = load.requests.saturating_sub(1);
            load.prefill_tokens = load.prefill_tokens.saturating_sub(work.prefill_tokens);
            load.blocks = load.blocks.saturating_sub(work.blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn books_and_releases_exactly() {
        let mut ledger = Ledger::default();
        let (a, b) = (ledger.place(address(1)), ledger.place(address(2)));
        assert_eq!(ledger.place(address(1)), a);
        let mut first = ledger.book(a, Work { prefill_tokens: 100, blocks: 9 });
        let second = ledger.book(a, Work { prefill_tokens: 30, blocks: 2 });
        assert_eq!(ledger.load(a), Load { requests: 2, prefill_tokens: 130, blocks: 11 });
        assert_eq!(ledger.load(b), Load::default());

        ledger.correct(&mut first, 70);
        assert_eq!(ledger.load(a), Load { requests: 2, prefill_tokens: 100, blocks: 11 });
        ledger.prefill_done(&mut first);
        ledger.prefill_done(&mut first);
        ledger.correct(&mut first, 500);
        assert_eq!(ledger.load(a), Load { requests: 2, prefill_tokens: 30, blocks: 11 });
        ledger.release(first);
        ledger.release(second);
        assert_eq!(ledger.load(a), Load::default());
    }
}
