//! The published index as a request reads it.

use std::rc::Rc;

use warmroute_routing::choose::{Candidate, Load};
use warmroute_routing::loads::WorkerKey;
use warmroute_routing::lookup::{IndexShape, PageStore};
use warmroute_routing::pool::{Pool, Worker, WorkerState};

use crate::decision::Reason;
use crate::failures::Failures;
use crate::fleet::Fleet;
use crate::host::{Host, Phase};
use crate::ledger::{Ledger, Place};
use crate::shared::{KeySet, PoolKeys, Published};

/// What was read less long ago than this need not be read again to know how to hash a prompt, in microseconds.
const JUST_NOW_US: u64 = 100_000;

/// A pool's published state, decoded once for each change.
#[derive(Debug)]
pub struct IndexReader {
    keys: PoolKeys,
    /// The bytes that `pool` was decoded from.
    pool_bytes: Vec<u8>,
    pool: Option<Rc<PoolView>>,
    /// When the published value was last read, in microseconds since 1970.
    read_at_us: u64,
}

/// A pool, and its workers' places in the ledger.
#[derive(Debug)]
pub struct PoolView {
    /// The pool.
    pub pool: Pool,
    /// The places in the ledger of each of the pool's workers, in their order.
    places: Vec<Places>,
}

/// A worker's places in the ledger.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// Its own.
    own: Place,
    /// That of its endpoint's requests that name no rank.
    unnamed: Place,
    /// How many ranks share those.
    ranks: u32,
}

/// The index at one moment: a pool and the set of keys that its pages are in.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The pool.
    pub view: Rc<PoolView>,
    /// The set that its pages are in.
    pub set: KeySet,
    /// How long ago the collector was last heard, in microseconds.
    pub age_us: u64,
}

/// Reads pages for a lookup.
pub struct SharedPages<'a, H> {
    host: &'a H,
    keys: &'a mut PoolKeys,
    set: KeySet,
}

// === impl IndexReader ===

impl IndexReader {
    /// A reader of the pool of this name.
    pub fn new(pool: &str) -> Self {
        Self { keys: PoolKeys::new(pool), pool_bytes: Vec::new(), pool: None, read_at_us: 0 }
    }

    /// The pool that a body is worth waiting for. Reads shared data only if that was not done just now: how a prompt is to
    /// be hashed changes seldom, and is looked at again before a decision.
    ///
    /// # Errors
    ///
    /// Why there is no index to use.
    pub fn ready(
        &mut self,
        host: &impl Host,
        ledger: &mut Ledger,
        now_us: u64,
        max_age_us: u64,
    ) -> Result<Rc<PoolView>, Reason> {
        if let Some(view) =
            self.pool.as_ref().filter(|_| now_us.saturating_sub(self.read_at_us) < JUST_NOW_US)
        {
            return Ok(Rc::clone(view));
        }
        self.snapshot(host, ledger, now_us, max_age_us).map(|snapshot| snapshot.view)
    }

    /// The index as it is now.
    ///
    /// # Errors
    ///
    /// Why there is no index to use.
    pub fn snapshot(
        &mut self,
        host: &impl Host,
        ledger: &mut Ledger,
        now_us: u64,
        max_age_us: u64,
    ) -> Result<Snapshot, Reason> {
        let value = host.shared(self.keys.published()).ok_or(Reason::NoIndex)?;
        let published = Published::decode(&value.bytes).map_err(|_| Reason::NoIndex)?;
        let view = self.view(&published, ledger).ok_or(Reason::NoIndex)?;
        let age_us = now_us.saturating_sub(published.heard_at_us);
        if age_us > max_age_us {
            return Err(Reason::StaleIndex);
        }
        self.read_at_us = now_us;
        Ok(Snapshot { view, set: published.set, age_us })
    }

    /// How long ago the collector was last heard, in microseconds; none if it never was.
    pub fn age_us(&self, host: &impl Host, now_us: u64) -> Option<u64> {
        let value = host.shared(self.keys.published())?;
        let published = Published::decode(&value.bytes).ok()?;
        Some(now_us.saturating_sub(published.heard_at_us))
    }

    /// The pool of a published value, decoded anew only where its bytes have changed.
    fn view(&mut self, published: &Published<'_>, ledger: &mut Ledger) -> Option<Rc<PoolView>> {
        if let Some(view) = self.pool.as_ref().filter(|_| self.pool_bytes == published.pool) {
            return Some(Rc::clone(view));
        }
        let pool = published.decode_pool().ok()?;
        let places = pool.workers.iter().map(|worker| Places::of(worker, &pool, ledger)).collect();
        let view = Rc::new(PoolView { pool, places });
        self.pool_bytes.clear();
        self.pool_bytes.extend_from_slice(published.pool);
        self.pool = Some(Rc::clone(&view));
        Some(view)
    }

    /// The pages of a snapshot.
    pub fn pages<'a, H: Host>(&'a mut self, host: &'a H, snapshot: &Snapshot) -> SharedPages<'a, H> {
        SharedPages { host, keys: &mut self.keys, set: snapshot.set }
    }
}

// === impl PoolView ===

impl PoolView {
    /// The workers that may be chosen now, ascending by slot, with what they have in hand.
    pub fn candidates(
        &self,
        ledger: &Ledger,
        fleet: &Fleet,
        failures: &Failures,
        now_us: u64,
    ) -> Vec<Candidate> {
        let load = |places: &Places| places.load(|place| ledger.load(place, now_us).plus(fleet.load(place)));
        let may_serve =
            |worker: &Worker| worker.state == WorkerState::Up && !failures.leaves_out(worker.address, now_us);
        let workers = self.pool.workers.iter().zip(&self.places);
        workers
            .filter(|(worker, _)| may_serve(worker))
            .map(|(worker, places)| Candidate { slot: worker.slot, load: load(places) })
            .collect()
    }

    /// The shape of the pool's index.
    pub fn shape(&self) -> IndexShape {
        IndexShape { generation: self.pool.generation, page_bits: self.pool.page_bits }
    }
}

// === impl Places ===

impl Places {
    fn of(worker: &Worker, pool: &Pool, ledger: &mut Ledger) -> Self {
        let place = |rank| WorkerKey { address: worker.address, rank };
        let (own, unnamed) = (ledger.place(place(Some(worker.rank))), ledger.place(place(None)));
        let ranks = pool.workers.iter().filter(|other| other.address == worker.address).count();
        Self { own, unnamed, ranks: u32::try_from(ranks).unwrap_or(u32::MAX) }
    }

    /// The worker's load, and its share of what went to its endpoint without a rank.
    fn load(&self, at: impl Fn(Place) -> Load) -> Load {
        at(self.own).plus(at(self.unnamed).part(1, self.ranks))
    }
}

// === impl SharedPages ===

impl<H: Host> PageStore for SharedPages<'_, H> {
    type Bytes = Vec<u8>;

    fn read(&mut self, page: u32) -> Option<Vec<u8>> {
        self.host.begins(Phase::Page);
        let value = self.host.shared(self.keys.page(self.set, page));
        self.host.begins(Phase::Choose);
        value.map(|value| value.bytes)
    }
}

#[cfg(test)]
mod tests {
    use warmroute_routing::page::{Generation, PageBits, Slot};

    use super::*;
    use crate::host::fake::FakeHost;

    const MAX_AGE: u64 = 30_000_000;

    fn pool() -> Pool {
        let worker = |slot, port: u16, state| Worker {
            slot: Slot::new(slot).unwrap(),
            address: ([127, 0, 0, 1], port).into(),
            rank: 0,
            state,
        };
        Pool {
            generation: Generation(4),
            page_bits: PageBits::new(4).unwrap(),
            block_size: 16,
            base_models: vec![],
            namespaced: false,
            workers: vec![worker(0, 8001, WorkerState::Up), worker(1, 8002, WorkerState::Down)],
        }
    }

    fn publish(host: &FakeHost, heard_at_us: u64) {
        let pool = pool().encode();
        let published = Published { set: KeySet::B, position: 1, heard_at_us, pool: &pool };
        host.put("warmroute/1/p/published", &published.encode());
    }

    #[test]
    fn there_is_no_index_until_one_is_published_whole() {
        let (host, mut ledger, mut reader) = (FakeHost::default(), Ledger::default(), IndexReader::new("p"));
        assert_eq!(reader.snapshot(&host, &mut ledger, 0, MAX_AGE).unwrap_err(), Reason::NoIndex);
        host.put("warmroute/1/p/published", b"");
        assert_eq!(reader.snapshot(&host, &mut ledger, 0, MAX_AGE).unwrap_err(), Reason::NoIndex);
        publish(&host, 5);
        let snapshot = reader.snapshot(&host, &mut ledger, 10, MAX_AGE).unwrap();
        assert_eq!((snapshot.set, snapshot.age_us), (KeySet::B, 5));
        assert_eq!(snapshot.view.pool, pool());
    }

    #[test]
    fn an_index_that_nobody_has_refreshed_for_too_long_is_not_used() {
        let (host, mut ledger, mut reader) = (FakeHost::default(), Ledger::default(), IndexReader::new("p"));
        publish(&host, 5);
        assert!(reader.ready(&host, &mut ledger, MAX_AGE, MAX_AGE).is_ok());
        let late = MAX_AGE + JUST_NOW_US;
        assert_eq!(reader.ready(&host, &mut ledger, late, MAX_AGE).unwrap_err(), Reason::StaleIndex);
        publish(&host, MAX_AGE);
        assert!(reader.ready(&host, &mut ledger, late, MAX_AGE).is_ok());
    }

    #[test]
    fn a_change_of_the_pool_is_seen_without_a_decision() {
        let (host, mut ledger, mut reader) = (FakeHost::default(), Ledger::default(), IndexReader::new("p"));
        publish(&host, 5);
        assert!(!reader.ready(&host, &mut ledger, 10, MAX_AGE).unwrap().pool.namespaced);
        let pool = Pool { namespaced: true, ..pool() }.encode();
        let published = Published { set: KeySet::B, position: 2, heard_at_us: 6, pool: &pool };
        host.put("warmroute/1/p/published", &published.encode());
        assert!(reader.ready(&host, &mut ledger, 10 + JUST_NOW_US, MAX_AGE).unwrap().pool.namespaced);
    }

    #[test]
    fn a_fresh_index_is_known_without_reading_it_again() {
        let (host, mut ledger, mut reader) = (FakeHost::default(), Ledger::default(), IndexReader::new("p"));
        publish(&host, 5);
        reader.ready(&host, &mut ledger, 10, MAX_AGE).unwrap();
        let reads = host.reads.get();
        reader.ready(&host, &mut ledger, 11, MAX_AGE).unwrap();
        assert_eq!(host.reads.get(), reads);
    }

    #[test]
    fn a_heartbeat_does_not_decode_the_pool_again() {
        let (host, mut ledger, mut reader) = (FakeHost::default(), Ledger::default(), IndexReader::new("p"));
        publish(&host, 5);
        let first = reader.snapshot(&host, &mut ledger, 10, MAX_AGE).unwrap();
        publish(&host, 6);
        let second = reader.snapshot(&host, &mut ledger, 10, MAX_AGE).unwrap();
        assert!(Rc::ptr_eq(&first.view, &second.view));
        assert_eq!(second.age_us, 4);
    }

    #[test]
    fn a_worker_that_is_down_or_has_just_failed_is_no_candidate() {
        let (host, mut ledger, mut reader) = (FakeHost::default(), Ledger::default(), IndexReader::new("p"));
        publish(&host, 5);
        let view = reader.snapshot(&host, &mut ledger, 10, MAX_AGE).unwrap().view;
        let mut failures = Failures::default();
        let candidates = view.candidates(&ledger, &Fleet::new("p"), &failures, 10);
        let slots: Vec<_> = candidates.iter().map(|candidate| candidate.slot.number()).collect();
        assert_eq!(slots, [0]);
        failures.failed(([127, 0, 0, 1], 8001).into(), 10);
        assert!(view.candidates(&ledger, &Fleet::new("p"), &failures, 10).is_empty());
    }
}
