//! What each worker has in hand of the proxy's requests.
//!
//! A VM keeps the books of the requests that it sent itself, exactly; what the other threads' VMs sent is read from shared
//! data, and this VM's books are written there, at most once a millisecond. What is read and written is what is left to
//! compute by then: see [`warmroute_routing::progress`].

use std::collections::HashMap;
use std::net::SocketAddr;

use warmroute_routing::choose::Load;
use warmroute_routing::loads::WorkerKey;
use warmroute_routing::progress::Progress;

use crate::host::{Host, WriteIf};
use crate::shared::{LOAD_KEY, LoadBook, LoadRow, ROW_LIFE_US};

/// The books are written at most once in this time, in microseconds: two calls into the host for each request would cost
/// more than the others gain by knowing a millisecond sooner.
const BETWEEN_WRITES_US: u64 = 1_000;

/// Attempts at a write that another VM's comes before.
const ATTEMPTS: u32 = 3;

/// The load by worker. A worker keeps its place for good: there are as many as the pools have had workers.
#[derive(Debug, Default)]
pub struct Ledger {
    /// This VM's random number.
    vm: u64,
    places: HashMap<WorkerKey, usize>,
    /// What this VM has sent, each prompt whole until its answer begins.
    loads: Vec<Load>,
    /// How far the workers are with that, by the same places.
    progress: Vec<Progress>,
    /// What the others have sent, by the same places.
    others: Vec<Load>,
    /// The write that `others` was read from.
    others_of: Option<u32>,
    /// This VM's books have changed since they were written.
    changed: bool,
    written_at_us: u64,
}

/// A worker's place in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

/// A request that is booked to a worker until it is released.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a booking that is not released stays in the books"]
pub struct Booking {
    place: Place,
    work: Work,
    /// The prompt is computed: the answer has begun.
    computed: bool,
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
    /// The books of the VM of this random number.
    pub fn new(vm: u64) -> Self {
        Self { vm, ..Self::default() }
    }

    /// The place of a worker; a new worker gets one.
    pub fn place(&mut self, worker: WorkerKey) -> Place {
        let (loads, progress, others) = (&mut self.loads, &mut self.progress, &mut self.others);
        Place(*self.places.entry(worker).or_insert_with(|| {
            loads.push(Load::default());
            progress.push(Progress::default());
            others.push(Load::default());
            loads.len() - 1
        }))
    }

    /// What the worker has in hand by now of this VM's requests, and of all others' that it knows of.
    pub fn load(&self, place: Place, now_us: u64) -> Load {
        self.left(place, now_us).plus(self.others.get(place.0).copied().unwrap_or_default())
    }

    /// What the worker has in hand by now of this VM's requests: without the prompt tokens that it has computed, by its pace.
    fn left(&self, Place(place): Place, now_us: u64) -> Load {
        let load = self.loads.get(place).copied().unwrap_or_default();
        let left = |progress: &Progress| progress.left(load.prefill_tokens, now_us);
        Load { prefill_tokens: self.progress.get(place).map_or(load.prefill_tokens, left), ..load }
    }

    /// What all ranks at an address have in hand of this VM's requests, each prompt whole until its answer begins, and of all
    /// others' that it knows of.
    pub fn endpoint(&self, address: SocketAddr) -> Load {
        let there = self.places.iter().filter(|(worker, _)| worker.address == address);
        let part = |loads: &[Load], place: usize| loads.get(place).copied().unwrap_or_default();
        there.fold(Load::default(), |sum, (_, place)| {
            sum.plus(part(&self.loads, *place)).plus(part(&self.others, *place))
        })
    }

    /// Reads what the other VMs have in flight.
    pub fn read_others(&mut self, host: &impl Host, now_us: u64) {
        let Some(value) = host.shared(LOAD_KEY) else { return };
        if self.others_of == Some(value.cas) {
            return;
        }
        self.others_of = Some(value.cas);
        self.others.fill(Load::default());
        for (worker, load) in LoadBook::decode(&value.bytes).others(self.vm, now_us) {
            let Place(place) = self.place(*worker);
            if let Some(known) = self.others.get_mut(place) {
                *known = known.plus(*load);
            }
        }
    }

    /// Writes this VM's books for the others, if they have changed, or are about to be taken for a dead VM's.
    pub fn write(&mut self, host: &impl Host, now_us: u64) {
        let age_us = now_us.saturating_sub(self.written_at_us);
        let is_busy = || self.loads.iter().any(|load| *load != Load::default());
        if !(self.changed && age_us >= BETWEEN_WRITES_US || age_us >= ROW_LIFE_US / 3 && is_busy()) {
            return;
        }
        let row = LoadRow { vm: self.vm, written_at_us: now_us, loads: self.busy(now_us) };
        for _ in 0..ATTEMPTS {
            let found = host.shared(LOAD_KEY);
            let mut book = found.as_ref().map(|value| LoadBook::decode(&value.bytes)).unwrap_or_default();
            book.put(row.clone());
            let condition = found.map_or(WriteIf::Absent, |value| WriteIf::Unchanged(value.cas));
            if host.set_shared(LOAD_KEY, &book.encode(), condition).is_ok() {
                self.changed = false;
                self.written_at_us = now_us;
                return;
            }
        }
    }

    fn busy(&self, now_us: u64) -> Vec<(WorkerKey, Load)> {
        let all = self.places.iter().map(|(worker, place)| (*worker, self.left(Place(*place), now_us)));
        all.filter(|(_, load)| *load != Load::default()).collect()
    }

    /// Books a request to a worker.
    pub fn book(&mut self, place: Place, work: Work, now_us: u64) -> Booking {
        self.changed = true;
        if let Some(load) = self.loads.get_mut(place.0) {
            *load = load.plus(work.load());
        }
        if let Some(progress) = self.progress.get_mut(place.0) {
            progress.sent(now_us);
        }
        Booking { place, work, computed: false }
    }

    /// Puts another number of tokens to compute in place of the one that was expected. Nothing, once they are computed.
    pub fn correct(&mut self, booking: &mut Booking, prefill_tokens: u64) {
        let expected = &mut booking.work.prefill_tokens;
        let Some(load) = self.loads.get_mut(booking.place.0).filter(|_| !booking.computed) else { return };
        load.prefill_tokens = load.prefill_tokens.saturating_sub(*expected).saturating_add(prefill_tokens);
        *expected = prefill_tokens;
        self.changed = true;
    }

    /// Takes the prompt's tokens off the books: the first answer is there, so they are computed. Nothing, the second time.
    pub fn prefill_done(&mut self, booking: &mut Booking, now_us: impl FnOnce() -> u64) {
        if std::mem::replace(&mut booking.computed, true) {
            return;
        }
        let computed = std::mem::take(&mut booking.work.prefill_tokens);
        self.changed |= computed > 0;
        if let Some(progress) = self.progress.get_mut(booking.place.0) {
            progress.answered(computed, now_us());
        }
        if let Some(load) = self.loads.get_mut(booking.place.0) {
            load.prefill_tokens = load.prefill_tokens.saturating_sub(computed);
        }
    }

    /// Takes the request off the books.
    #[allow(clippy::needless_pass_by_value, reason = "a booking is released once: it is consumed")]
    pub fn release(&mut self, booking: Booking) {
        let Booking { place, work, computed } = booking;
        self.changed = true;
        if let Some(progress) = self.progress.get_mut(place.0).filter(|_| !computed) {
            progress.given_up();
        }
        if let Some(load) = self.loads.get_mut(place.0) {
            *load = load.minus(work.load());
        }
    }
}

// === impl Place ===

impl Place {
    /// Its number: places are counted from 0 up.
    pub fn number(self) -> usize {
        self.0
    }
}

// === impl Work ===

impl Work {
    /// The load that one request with this work is.
    fn load(self) -> Load {
        Load { requests: 1, prefill_tokens: self.prefill_tokens, blocks: self.blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    const WORK: Work = Work { prefill_tokens: 100, blocks: 9 };
    const SECOND: u64 = 1_000_000;

    fn worker(port: u16) -> WorkerKey {
        WorkerKey { address: ([127, 0, 0, 1], port).into(), rank: Some(0) }
    }

    #[test]
    fn books_and_releases_exactly() {
        let mut ledger = Ledger::default();
        let (a, b) = (ledger.place(worker(1)), ledger.place(worker(2)));
        assert_eq!(ledger.place(worker(1)), a);
        let mut first = ledger.book(a, Work { prefill_tokens: 100, blocks: 9 }, SECOND);
        let second = ledger.book(a, Work { prefill_tokens: 30, blocks: 2 }, SECOND);
        assert_eq!(ledger.load(a, SECOND), Load { requests: 2, prefill_tokens: 130, blocks: 11 });
        assert_eq!(ledger.load(b, SECOND), Load::default());

        ledger.correct(&mut first, 70);
        assert_eq!(ledger.load(a, SECOND), Load { requests: 2, prefill_tokens: 100, blocks: 11 });
        ledger.prefill_done(&mut first, || SECOND);
        ledger.prefill_done(&mut first, || SECOND);
        ledger.correct(&mut first, 500);
        assert_eq!(ledger.load(a, SECOND), Load { requests: 2, prefill_tokens: 30, blocks: 11 });
        ledger.release(first);
        ledger.release(second);
        assert_eq!(ledger.load(a, SECOND), Load::default());
    }

    #[test]
    fn what_a_worker_has_computed_by_its_pace_counts_no_longer_here_or_for_the_others() {
        let host = FakeHost::default();
        let (mut one, mut two) = (Ledger::new(1), Ledger::new(2));
        let (at_one, at_two) = (one.place(worker(1)), two.place(worker(1)));
        // 100 tokens a second.
        let mut first = one.book(at_one, WORK, SECOND);
        one.prefill_done(&mut first, || 2 * SECOND);
        let second = one.book(at_one, WORK, 2 * SECOND);
        let half_way = 5 * SECOND / 2;
        assert_eq!(one.load(at_one, half_way), Load { requests: 2, prefill_tokens: 50, blocks: 18 });
        one.write(&host, half_way);
        two.read_others(&host, half_way);
        assert_eq!(two.load(at_two, half_way), one.load(at_one, half_way));
        // Whole again in what tests and reports see, and nothing once it is given up.
        assert_eq!(one.endpoint(worker(1).address).prefill_tokens, 100);
        one.release(second);
        one.release(first);
        assert_eq!(one.load(at_one, half_way), Load::default());
    }

    #[test]
    fn what_one_vm_sends_the_others_know_until_it_is_over() {
        let host = FakeHost::default();
        let (mut one, mut two) = (Ledger::new(1), Ledger::new(2));
        let (at_one, at_two) = (one.place(worker(1)), two.place(worker(1)));
        let booking = one.book(at_one, WORK, SECOND);
        one.write(&host, SECOND);
        two.read_others(&host, SECOND);
        assert_eq!(two.load(at_two, SECOND), one.load(at_one, SECOND));
        let own = two.book(at_two, WORK, SECOND);
        assert_eq!(two.load(at_two, SECOND), Load { requests: 2, prefill_tokens: 200, blocks: 18 });
        two.release(own);

        one.release(booking);
        one.write(&host, SECOND + BETWEEN_WRITES_US);
        two.read_others(&host, 2 * SECOND);
        assert_eq!(two.load(at_two, SECOND), Load::default());
    }

    #[test]
    fn writes_are_few_but_the_last_state_is_written() {
        let host = FakeHost::default();
        let mut ledger = Ledger::new(1);
        let place = ledger.place(worker(1));
        let writes = |host: &FakeHost| host.shared(LOAD_KEY).map_or(0, |value| value.cas);
        for now_us in 0..500 {
            let booking = ledger.book(place, WORK, SECOND);
            ledger.write(&host, SECOND + now_us);
            ledger.release(booking);
            ledger.write(&host, SECOND + now_us);
        }
        assert_eq!(writes(&host), 1);
        ledger.write(&host, SECOND + BETWEEN_WRITES_US);
        assert_eq!(LoadBook::decode(&host.shared(LOAD_KEY).unwrap().bytes), LoadBook::default());
        ledger.write(&host, 60 * SECOND);
        assert_eq!(writes(&host), 2, "nothing has changed");
    }

    #[test]
    fn a_long_request_stays_in_the_books_as_long_as_its_vm_lives() {
        let host = FakeHost::default();
        let (mut one, mut two) = (Ledger::new(1), Ledger::new(2));
        let (at_one, at_two) = (one.place(worker(1)), two.place(worker(1)));
        let _long = one.book(at_one, WORK, SECOND);
        for now_s in 1..600 {
            one.write(&host, now_s * SECOND);
            two.read_others(&host, now_s * SECOND);
            assert_eq!(two.load(at_two, SECOND).requests, 1, "after {now_s} s");
        }
        // It is gone. Another's write drops its row.
        let own = two.book(at_two, WORK, SECOND);
        two.write(&host, 604 * SECOND);
        two.release(own);
        two.write(&host, 605 * SECOND);
        two.read_others(&host, 605 * SECOND);
        assert_eq!(two.load(at_two, SECOND), Load::default());
    }

    #[test]
    fn a_write_that_loses_its_race_is_tried_again() {
        let host = FakeHost::default();
        let mut ledger = Ledger::new(1);
        let place = ledger.place(worker(1));
        let _booking = ledger.book(place, WORK, SECOND);
        host.lose_next_write();
        ledger.write(&host, SECOND);
        assert!(host.shared(LOAD_KEY).is_some());
    }
}
