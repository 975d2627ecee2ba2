//! The exact prefix index: what the engines say of their caches in, pages out.
//!
//! ```text
//! Event --(names)--> Tree of blocks --(closure)--> published blocks --> Pages
//!          per worker   shared         per worker and block
//! ```
//!
//! * A worker's *names* (`names`, `store`) tell which block an engine means by a hash, and how many copies of it there
//!   are in each tier. Blocks whose parent is unknown wait as *orphans* (`orphans`).
//! * The *tree* (`tree`, `chunk`, `holders`) has the blocks in chunks of up to sixteen that follow one another, each with the workers
//!   that hold any of them.
//! * A block is *published* for a worker if that worker holds every block before it too (`residency`): so the depth of a
//!   match can be found by bisection.
//! * *Pages* (`pages`, `publish`) are the published blocks, cut by hash; each knows when it last changed.
//! * A *seat* (`seats`) is one incarnation of a worker. When a worker restarts or clears its cache it gets a new seat
//!   and a new slot: nothing of the old one counts from then on, and it is purged at leisure (`retired`).
//!
//! * What one worker has told can be *saved* and taken over by another index (`saved`).
//!
//! Everything is counted, not assumed: engines store a block several times and remove it as often, evict blocks from
//! the middle of a chain, and lose events. No input panics, and what an event costs is bounded by the blocks that it
//! names and those below them.
//!
//! ```
//! use warmroute_index::event::{EngineHash, Event, Group, Stored};
//! use warmroute_index::{Index, Options, WorkerIdentity};
//! use warmroute_routing::Tier;
//! use warmroute_routing::hash::{Namespace, sequence_hashes};
//! use warmroute_routing::page::{Generation, Page, PageBits};
//!
//! let page_bits = PageBits::new(4).unwrap();
//! let mut index = Index::new(Options { block_size: 2, page_bits, max_orphans: 100 }, Generation(1));
//! let worker = index.add_worker(WorkerIdentity { address: "10.0.0.1:8000".into(), rank: 0 }).unwrap();
//! let stored = Stored {
//!     hashes: vec![EngineHash(70), EngineHash(71)],
//!     parent: None,
//!     tokens: vec![1, 2, 3, 4],
//!     block_size: 2,
//!     media: vec![],
//!     lora: None,
//!     salt: None,
//!     tier: Tier::Gpu,
//!     group: Group(0),
//! };
//! assert_eq!(index.apply(worker, &Event::Stored(stored)).unwrap().stored, 2);
//!
//! let hashes = sequence_hashes(&[1, 2, 3, 4], 2, Namespace::default());
//! let bytes = index.page(page_bits.page_of(hashes[0])); // both blocks are of one run
//! assert!(Page::parse(&bytes).unwrap().find(hashes[1]).is_some());
//! ```
#![forbid(unsafe_code)]

mod apply;
mod chunk;
mod content;
mod copies;
mod error;
pub mod event;
mod holders;
mod names;
mod orphans;
mod pages;
mod publish;
mod residency;
mod retired;
mod saved;
mod seats;
mod stats;
mod store;
mod tree;
mod worker;

use std::collections::BTreeMap;

use warmroute_routing::Tier;
use warmroute_routing::page::{Generation, PageBits, Slot};

pub use crate::error::{EventError, IndexError, RestoreError};
pub use crate::stats::{Applied, Stats, WorkerStats};
pub use crate::worker::{WorkerId, WorkerIdentity};

use crate::pages::Pages;
use crate::publish::Publisher;
use crate::residency::Residency;
use crate::retired::Retired;
use crate::seats::SeatId;
use crate::worker::{Ledger, Worker};

/// How an index is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Tokens in a block; 0 is taken as 1.
    pub block_size: u32,
    /// How many pages there are at first.
    pub page_bits: PageBits,
    /// How many blocks with an unknown parent are kept for each worker. Beyond that the oldest are given up.
    pub max_orphans: usize,
}

/// The exact index of one pool.
///
/// Its *version* grows with each change of a page or of the worker table, through all generations; a reader remembers it
/// as its position and asks [`Index::changed_since`] for the rest.
#[derive(Debug)]
pub struct Index {
    options: Options,
    generation: Generation,
    workers: BTreeMap<WorkerId, Worker>,
    next_worker: u64,
    workers_version: u64,
    namespaced: bool,
    residency: Residency,
    retired: Retired,
    publisher: Publisher,
}

// === impl Index ===

impl Index {
    /// The page's records may be this many on average before more pages are wanted.
    const MOST_RECORDS_A_PAGE: u64 = 24;
    /// The records that a page should have on average in a new generation: room to grow by half.
    const RECORDS_A_PAGE: u64 = 15;

    /// An index without workers.
    pub fn new(options: Options, generation: Generation) -> Self {
        let options = Options { block_size: options.block_size.max(1), ..options };
        Self {
            options,
            generation,
            workers: BTreeMap::new(),
            next_worker: 0,
            workers_version: 1,
            namespaced: false,
            residency: Residency::new(Pages::new(options.page_bits, 1)),
            retired: Retired::default(),
            publisher: Publisher::default(),
        }
    }

    /// Adds a worker that holds nothing yet.
    ///
    /// # Errors
    ///
    /// The worker is there already, or this generation has no slot left; then the caller begins a new one.
    pub fn add_worker(&mut self, identity: WorkerIdentity) -> Result<WorkerId, IndexError> {
        if let Some((id, _)) = self.workers.iter().find(|(_, worker)| worker.identity == identity) {
            return Err(IndexError::WorkerExists(*id));
        }
        if !self.residency.seats.has_slot() {
            return Err(IndexError::SlotsExhausted);
        }
        let id = WorkerId(self.next_worker);
        self.next_worker += 1;
        let seat = self.residency.seats.open();
        self.workers.insert(id, Worker { identity, seat, ledger: Ledger::default() });
        self.touch();
        Ok(id)
    }

    /// Removes a worker. Its slot is dead at once; what it held is left to [`Index::purge`]. Nothing happens if it is
    /// not there.
    pub fn remove_worker(&mut self, worker: WorkerId) {
        if let Some(worker) = self.workers.remove(&worker) {
            self.retire(worker.seat, worker.ledger);
        }
    }

    /// Forgets all that a worker holds, as [`Index::remove_worker`] does, but keeps the worker, under a new slot: it has
    /// restarted, cleared its cache, or lost events. Should the generation have no slot left, the worker is not listed
    /// until the next one ([`Index::needs_generation`]); its events count all the same.
    pub fn reset_worker(&mut self, worker: WorkerId) {
        let Some(worker) = self.workers.get_mut(&worker) else { return };
        let ledger = std::mem::take(&mut worker.ledger);
        let seat = std::mem::replace(&mut worker.seat, self.residency.seats.open());
        self.retire(seat, ledger);
    }

    fn retire(&mut self, seat: SeatId, ledger: Ledger) {
        let version = self.touch();
        self.residency.seats.retire(seat, version);
        self.retired.push(seat, ledger, &mut self.residency);
    }

    /// The worker table: every worker that has a slot, in the order in which they were added.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerId, &WorkerIdentity, Slot)> {
        let slot = |worker: &Worker| self.residency.seats.slot(worker.seat);
        self.workers.iter().filter_map(move |(id, worker)| Some((*id, &worker.identity, slot(worker)?)))
    }

    /// Whether a worker is left out of the worker table until the next generation.
    pub fn needs_generation(&self) -> bool {
        self.workers.values().any(|worker| self.residency.seats.slot(worker.seat).is_none())
    }

    /// Drops what retired slots held, up to `max_blocks` names of blocks at a time. Returns how many; fewer than
    /// `max_blocks` when nothing is left.
    pub fn purge(&mut self, max_blocks: usize) -> usize {
        self.residency.pages.begin_step();
        self.retired.purge(max_blocks, &mut self.residency)
    }

    /// Whether a block of another namespace than the plain one was ever stored.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// The generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// How many pages there are.
    pub fn page_bits(&self) -> PageBits {
        self.residency.pages.bits()
    }

    /// Tokens in a block.
    pub fn block_size(&self) -> u32 {
        self.options.block_size
    }

    /// The version of the last change of any page or of the worker table. Starts at 1.
    pub fn version(&self) -> u64 {
        self.residency.pages.version()
    }

    /// The version of the last change of the worker table, or of what the caller keeps beside it.
    pub fn workers_version(&self) -> u64 {
        self.workers_version
    }

    /// The caller has changed something that is published beside the worker table, as a worker's state. Returns the
    /// version of this change.
    pub fn touch(&mut self) -> u64 {
        self.workers_version = self.residency.pages.next_version();
        self.workers_version
    }

    /// A page's bytes as they are now, under the version of its last change.
    ///
    /// A page is written without retired slots. Those can vanish from it without a new version, since readers heed only
    /// slots of the worker table; every other change has its version.
    pub fn page(&mut self, number: u32) -> Vec<u8> {
        self.publisher.page(&self.residency, self.generation, number)
    }

    /// The version of a page's last change; 0 if it has not been written in this generation.
    pub fn page_version(&self, number: u32) -> u64 {
        self.residency.pages.page_version(number)
    }

    /// The pages that changed after `position`, each with the version of its last change, in ascending order of those,
    /// pages that are empty now included. Each change of a page has a version of its own: a reader may stop after any
    /// page and take that version as its position.
    pub fn changed_since(&self, position: u64) -> impl Iterator<Item = (u64, u32)> {
        self.residency.pages.changed_since(position)
    }

    /// How many pages there should be, if the pages hold so many records that it is time for a generation with more.
    pub fn wants_pages(&self) -> Option<PageBits> {
        let blocks = self.residency.pages.blocks();
        let mean_is_within = |bits: PageBits, most: u64| blocks <= u64::from(bits.page_count()) * most;
        if mean_is_within(self.page_bits(), Self::MOST_RECORDS_A_PAGE) {
            return None;
        }
        let mut more = (self.page_bits().bits() + 1..=PageBits::MAX).filter_map(PageBits::new);
        more.clone().find(|bits| mean_is_within(*bits, Self::RECORDS_A_PAGE)).or_else(|| more.next_back())
    }

    /// Begins a generation: the content stays, every retired slot is purged, workers get slots from 0 on in the order in
    /// which they were added, and every page that is not empty has changed.
    pub fn begin_generation(&mut self, generation: Generation, page_bits: PageBits) {
        self.purge(usize::MAX);
        self.generation = generation;
        self.residency.seats.renumber();
        for worker in self.workers.values() {
            self.residency.seats.seat_anew(worker.seat);
        }
        let version = self.touch();
        self.residency.repage(Pages::new(page_bits, version));
    }

    /// How large the index is.
    pub fn stats(&self) -> Stats {
        let residency = &self.residency;
        let mut stats = Stats {
            blocks: residency.pages.blocks(),
            workers: self.workers.len(),
            retired_slots: self.retired.len(),
            nodes: residency.tree.len(),
            node_capacity: residency.tree.capacity(),
            change_log: residency.pages.log_len(),
            memory_bytes: residency.tree.memory_bytes() + residency.pages.memory_bytes(),
            ..Stats::default()
        };
        for worker in self.workers.values() {
            stats.names += worker.ledger.names.len() as u64;
            stats.memory_bytes += worker.ledger.names.memory_bytes();
            stats.orphans += worker.ledger.orphans.len() as u64;
            stats.unlisted_workers += usize::from(residency.seats.slot(worker.seat).is_none());
            if let Some(seat) = residency.seats.get(worker.seat) {
                stats.holdings += seat.published;
                stats.unpublished += seat.unpublished;
            }
        }
        stats
    }
    /// What one worker has told; none if it is not there. Looks at each of its names.
    pub fn worker_stats(&self, worker: WorkerId) -> Option<WorkerStats> {
        let worker = self.workers.get(&worker)?;
        let seat = self.residency.seats.get(worker.seat).copied().unwrap_or_default();
        let mut stats = WorkerStats {
            published: seat.published,
            unpublished: seat.unpublished,
            orphans: worker.ledger.orphans.len() as u64,
            ..WorkerStats::default()
        };
        for (group, _, _, copies) in worker.ledger.names.iter() {
            let counts = stats.by_group.entry(group).or_default();
            for (count, tier) in counts.iter_mut().zip(Tier::ALL) {
                *count += u64::from(copies.has(tier));
            }
        }
        Some(stats)
    }
}
