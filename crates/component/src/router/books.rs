//! What each worker has in hand.

use std::collections::{HashMap, VecDeque};

use warmroute_routing::choose::Load;

/// A worker's number and rank.
pub(crate) type WorkerKey = (u64, u32);

/// Requests that are booked at a time. Beyond that the oldest is taken off: a host that never frees any must not grow
/// without bound.
const MAX_BOOKINGS: usize = 1 << 20;

/// The books: what was booked here, and what was told of others.
#[derive(Debug, Default)]
pub(crate) struct Books {
    bookings: HashMap<String, Booking>,
    /// Every booking in the order of its time; those that were freed or booked anew since are passed over.
    by_time: VecDeque<(u64, String)>,
    booked: HashMap<WorkerKey, Load>,
    told: HashMap<WorkerKey, Load>,
    /// The number of the next booking, which tells it from others of the same name.
    next: u64,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Booking {
    number: u64,
    at_ms: u64,
    worker: WorkerKey,
    work: Work,
}

/// What a request asks of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Prompt tokens that have to be computed.
    pub(crate) prefill_tokens: u64,
    /// Blocks of the prompt, cached or not.
    pub(crate) blocks: u64,
}

// === impl Books ===

impl Books {
    /// Books a request, instead of what was booked under its name.
    pub(crate) fn book(&mut self, request: String, worker: WorkerKey, work: Work, now_ms: u64) {
        self.free(&request);
        while self.bookings.len() >= MAX_BOOKINGS && self.free_oldest() {}
        let number = self.next;
        self.next += 1;
        let load = self.booked.entry(worker).or_default();
        load.requests = load.requests.saturating_add(1);
        load.prefill_tokens = load.prefill_tokens.saturating_add(work.prefill_tokens);
        load.blocks = load.blocks.saturating_add(work.blocks);
        self.by_time.push_back((number, request.clone()));
        self.bookings.insert(request, Booking { number, at_ms: now_ms, worker, work });
        self.compact();
    }

    /// Takes a prompt's tokens off the books: they are computed.
    pub(crate) fn prefill_complete(&mut self, request: &str) -> bool {
        let Some(booking) = self.bookings.get_mut(request) else { return false };
        let computed = std::mem::take(&mut booking.work.prefill_tokens);
        if let Some(load) = self.booked.get_mut(&booking.worker) {
            load.prefill_tokens = load.prefill_tokens.saturating_sub(computed);
        }
        true
    }

    /// Takes a request off the books.
    pub(crate) fn free(&mut self, request: &str) -> bool {
        let Some(Booking { worker, work, .. }) = self.bookings.remove(request) else { return false };
        if let Some(load) = self.booked.get_mut(&worker) {
            load.requests = load.requests.saturating_sub(1);
            load.prefill_tokens = load.prefill_tokens.saturating_sub(work.prefill_tokens);
            load.blocks = load.blocks.saturating_sub(work.blocks);
            if *load == Load::default() {
                self.booked.remove(&worker);
            }
        }
        true
    }

    /// Takes off the books what was booked longer than `life_ms` ago.
    pub(crate) fn expire(&mut self, now_ms: u64, life_ms: u64) {
        while let Some((number, request)) = self.by_time.front() {
            let booking = self.bookings.get(request).filter(|booking| booking.number == *number);
            if booking.is_some_and(|booking| now_ms.saturating_sub(booking.at_ms) <= life_ms) {
                return;
            }
            self.free_oldest();
        }
    }

    /// Frees the oldest booking. False where there is none.
    fn free_oldest(&mut self) -> bool {
        let Some((number, request)) = self.by_time.pop_front() else { return false };
        if self.bookings.get(&request).is_some_and(|booking| booking.number == number) {
            self.free(&request);
        }
        true
    }

    /// Drops the entries of freed bookings once they are the larger part.
    fn compact(&mut self) {
        if self.by_time.len() > 64 && self.by_time.len() / 2 > self.bookings.len() {
            let bookings = &self.bookings;
            let is_booked = |(number, request): &(u64, String)| {
                bookings.get(request).is_some_and(|booking| booking.number == *number)
            };
            self.by_time.retain(is_booked);
        }
    }

    /// What others have booked, in place of what was told before.
    pub(crate) fn tell(&mut self, loads: impl IntoIterator<Item = (WorkerKey, Load)>) {
        self.told = loads.into_iter().collect();
    }

    /// A worker's work in hand, booked and told.
    pub(crate) fn load(&self, worker: WorkerKey) -> Load {
        let part = |loads: &HashMap<WorkerKey, Load>| loads.get(&worker).copied().unwrap_or_default();
        let (booked, told) = (part(&self.booked), part(&self.told));
        Load {
            requests: booked.requests.saturating_add(told.requests),
            prefill_tokens: booked.prefill_tokens.saturating_add(told.prefill_tokens),
            blocks: booked.blocks.saturating_add(told.blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORKER: WorkerKey = (7, 0);
    const WORK: Work = Work { prefill_tokens: 100, blocks: 10 };

    fn load(requests: u32, prefill_tokens: u64, blocks: u64) -> Load {
        Load { requests, prefill_tokens, blocks }
    }

    #[test]
    fn a_request_is_booked_until_it_is_freed_and_its_prefill_until_its_first_token() {
        let mut books = Books::default();
        books.book("a".into(), WORKER, WORK, 0);
        assert_eq!(books.load(WORKER), load(1, 100, 10));
        assert!(books.prefill_complete("a") && books.prefill_complete("a"));
        assert_eq!(books.load(WORKER), load(1, 0, 10));
        assert!(books.free("a"));
        assert!(!books.free("a") && !books.prefill_complete("a"));
        assert_eq!(books.load(WORKER), Load::default());
    }

    #[test]
    fn a_name_that_is_booked_again_counts_once() {
        let mut books = Books::default();
        books.book("a".into(), (1, 0), WORK, 0);
        books.book("a".into(), (2, 0), WORK, 5);
        assert_eq!((books.load((1, 0)), books.load((2, 0))), (Load::default(), load(1, 100, 10)));
        books.expire(11, 10);
        assert_eq!(books.load((2, 0)), load(1, 100, 10), "the life of the later booking counts");
        books.expire(16, 10);
        assert_eq!(books.load((2, 0)), Load::default());
    }

    #[test]
    fn what_others_have_booked_is_added_and_replaced() {
        let mut books = Books::default();
        books.book("a".into(), WORKER, WORK, 0);
        books.tell([(WORKER, load(2, 5, 5))]);
        assert_eq!(books.load(WORKER), load(3, 105, 15));
        books.tell([]);
        assert_eq!(books.load(WORKER), load(1, 100, 10));
    }

    proptest! {
        #[test]
        fn the_books_are_the_sum_of_what_is_in_flight(
            steps in prop::collection::vec((0..3u8, 0..40u64, 0..4u64), 0..300),
        ) {
            let mut books = Books::default();
            let mut in_flight: HashMap<String, (WorkerKey, Work)> = HashMap::new();
            for (now, (step, request, worker)) in steps.into_iter().enumerate() {
                let name = request.to_string();
                match step {
                    0 => {
                        let work = Work { prefill_tokens: request * 3, blocks: request };
                        books.book(name.clone(), (worker, 0), work, now as u64);
                        in_flight.insert(name, ((worker, 0), work));
                    }
                    1 => prop_assert_eq!(books.free(&name), in_flight.remove(&name).is_some()),
                    _ => {
                        prop_assert_eq!(books.prefill_complete(&name), in_flight.contains_key(&name));
                        in_flight.entry(name).and_modify(|(_, work)| work.prefill_tokens = 0);
                    }
                }
                for worker in 0..4 {
                    let here = in_flight.values().filter(|(at, _)| *at == (worker, 0));
                    let sum = here.fold(Load::default(), |sum, (_, work)| {
                        load(sum.requests + 1, sum.prefill_tokens + work.prefill_tokens, sum.blocks + work.blocks)
                    });
                    prop_assert_eq!(books.load((worker, 0)), sum);
                }
            }
        }
    }
}
