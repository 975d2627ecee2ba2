//! An index, and which worker is which.

use std::collections::{HashMap, HashSet};

use warmroute_index::event::Event;
use warmroute_index::{self as exact, WorkerId, WorkerIdentity};
use warmroute_routing::hash::{MAX_BLOCK_SIZE, SequenceHash};
use warmroute_routing::lookup::{IndexShape, PageStore, RefineAll, Scope, lookup};
use warmroute_routing::page::{Generation, PageBits, Slot};

use crate::bindings::exports::warmroute::routing::prefix_index as wit;
use crate::{convert, tokens};

/// An index, and which worker is which.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) index: exact::Index,
    options: wit::Options,
    pub(super) ids: HashMap<(u64, u32), WorkerId>,
    /// When events were applied last, in the host's milliseconds.
    pub(crate) heard_at_ms: Option<u64>,
}

/// A worker of the index in its present slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seated {
    pub(crate) worker: wit::Worker,
    pub(crate) slot: Slot,
}

/// The most workers: what fits into one generation's slots.
const MAX_WORKERS: usize = Slot::MAX as usize + 1;

/// Names of blocks that are purged with each call, of workers that are gone.
const PURGED_AT_ONCE: usize = 4_096;

/// Reads pages straight from the index.
struct Pages<'a>(&'a mut exact::Index);

// === impl State ===

impl State {
    pub(crate) fn open(options: wit::Options) -> Result<Self, String> {
        if options.block_size == 0 || options.block_size > MAX_BLOCK_SIZE {
            return Err(format!("block-size is {}; write 1 to {MAX_BLOCK_SIZE}", options.block_size));
        }
        let laid_out = exact::Options {
            block_size: options.block_size,
            page_bits: PageBits::new(0).ok_or("there are no pages")?,
            max_orphans: options.max_orphans as usize,
        };
        let index = exact::Index::new(laid_out, Generation(1));
        Ok(Self { index, options, ids: HashMap::new(), heard_at_ms: None })
    }

    pub(crate) fn add_worker(&mut self, worker: wit::Worker) -> bool {
        let key = (worker.id, worker.rank);
        if self.ids.contains_key(&key) {
            return true;
        }
        if self.ids.len() >= MAX_WORKERS {
            return false;
        }
        let identity = || WorkerIdentity { address: worker.id.to_string(), rank: worker.rank };
        let added = self.index.add_worker(identity()).or_else(|_| {
            // Slots are never given twice in a generation.
            self.begin_generation(self.index.page_bits());
            self.index.add_worker(identity())
        });
        added.is_ok_and(|id| self.ids.insert(key, id).is_none())
    }

    pub(crate) fn remove_worker(&mut self, worker: wit::Worker) -> bool {
        let id = self.ids.remove(&(worker.id, worker.rank));
        id.is_some_and(|id| {
            self.index.remove_worker(id);
            self.tidy();
            true
        })
    }

    pub(crate) fn reset_worker(&mut self, worker: wit::Worker) -> bool {
        let id = self.ids.get(&(worker.id, worker.rank)).copied();
        id.is_some_and(|id| {
            self.index.reset_worker(id);
            self.tidy();
            true
        })
    }

    /// The engines were heard at this time.
    pub(crate) fn heard(&mut self, now_ms: u64) {
        self.heard_at_ms = Some(self.heard_at_ms.map_or(now_ms, |before| before.max(now_ms)));
    }

    /// Applies events in their order; returns how many the index took.
    pub(crate) fn apply_events(&mut self, worker: wit::Worker, events: &[Event]) -> usize {
        let Some(id) = self.ids.get(&(worker.id, worker.rank)).copied() else { return 0 };
        let applied = events.iter().filter(|event| self.index.apply(id, event).is_ok()).count();
        self.tidy();
        applied
    }

    /// Drops what nobody counts any more, and begins a generation where workers or pages ask for one.
    pub(super) fn tidy(&mut self) {
        self.index.purge(PURGED_AT_ONCE);
        let more = self.index.wants_pages();
        if more.is_some() || self.index.needs_generation() {
            self.begin_generation(more.unwrap_or_else(|| self.index.page_bits()));
        }
    }

    fn begin_generation(&mut self, page_bits: PageBits) {
        let Generation(number) = self.index.generation();
        self.index.begin_generation(Generation(number.wrapping_add(1)), page_bits);
    }

    pub(crate) fn block_size(&self) -> u32 {
        self.index.block_size()
    }

    /// As it was opened.
    pub(crate) fn options(&self) -> wit::Options {
        self.options
    }

    /// What a worker has told so far, as bytes; none if it is not there.
    pub(crate) fn save_worker(&self, worker: wit::Worker) -> Option<Vec<u8>> {
        self.index.save_worker(*self.ids.get(&(worker.id, worker.rank))?)
    }

    /// Adds a worker that has told what [`State::save_worker`] gave. False where it is there already, there is no room, or
    /// the bytes are damaged.
    pub(crate) fn restore_worker(&mut self, worker: wit::Worker, saved: &[u8]) -> bool {
        if self.ids.contains_key(&(worker.id, worker.rank)) || !self.add_worker(worker) {
            return false;
        }
        let id = self.ids.get(&(worker.id, worker.rank)).copied();
        let restored = id.is_some_and(|id| self.index.restore_worker(id, saved).is_ok());
        self.tidy();
        restored
    }

    /// The workers, in the order in which they were added.
    pub(crate) fn seated(&self) -> Vec<Seated> {
        let seated = |(_, identity, slot): (WorkerId, &WorkerIdentity, Slot)| {
            let id = identity.address.parse().ok()?;
            Some(Seated { worker: wit::Worker { id, rank: identity.rank }, slot })
        };
        self.index.workers().filter_map(seated).collect()
    }

    /// The index as the lookup reads it.
    pub(crate) fn pages(&mut self) -> (impl PageStore + '_, IndexShape) {
        let shape = IndexShape { generation: self.index.generation(), page_bits: self.index.page_bits() };
        (Pages(&mut self.index), shape)
    }

    pub(crate) fn matches(&mut self, prompt: wit::Prompt) -> Result<Vec<wit::Match>, String> {
        let hashes: Vec<SequenceHash> = tokens::prompt(prompt, self.block_size())?.hashes;
        let seated = self.seated();
        let (mut store, shape) = self.pages();
        let slots: HashSet<Slot> = seated.iter().map(|seated| seated.slot).collect();
        let live = |slot| slots.contains(&slot);
        let scope = Scope { store: &mut store, shape, live, max_reads: u32::MAX };
        let found = lookup(scope, &hashes, &mut RefineAll).workers;
        let depths: HashMap<Slot, _> = found.iter().map(|found| (found.slot, found.at_least)).collect();
        let matched = |seated: &Seated| {
            let depths = convert::depths_out(depths.get(&seated.slot)?);
            Some(wit::Match { worker: seated.worker, depths })
        };
        Ok(seated.iter().filter_map(matched).collect())
    }

    pub(crate) fn stats(&self) -> wit::Stats {
        let stats = self.index.stats();
        wit::Stats {
            blocks: stats.blocks,
            holdings: stats.holdings,
            unpublished: stats.unpublished,
            orphans: stats.orphans,
            workers: u32::try_from(stats.workers).unwrap_or(u32::MAX),
        }
    }
}

// === impl Pages ===

impl PageStore for Pages<'_> {
    type Bytes = Vec<u8>;

    fn read(&mut self, page: u32) -> Option<Vec<u8>> {
        (page < self.0.page_bits().page_count()).then(|| self.0.page(page))
    }
}
