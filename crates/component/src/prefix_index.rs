//! Engine events in, who holds how much of a prompt out.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored, StoredLocals};
use warmroute_index::{self as exact, Applied, EventError, WorkerId, WorkerIdentity};
use warmroute_routing::hash::{LocalHash, MAX_BLOCK_SIZE, SequenceHash};
use warmroute_routing::lookup::{IndexShape, PageStore, RefineAll, Scope, lookup};
use warmroute_routing::page::{Generation, PageBits, Slot};

use crate::bindings::exports::warmroute::routing::prefix_index as wit;
use crate::{Component, convert, tokens};

/// The index of one pool, as the contract has it.
#[derive(Debug)]
pub struct Index(Rc<RefCell<State>>);

/// An index, and which worker is which.
#[derive(Debug)]
pub(crate) struct State {
    index: exact::Index,
    ids: HashMap<(u64, u32), WorkerId>,
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

// === impl Index ===

impl Index {
    pub(crate) fn state(&self) -> Rc<RefCell<State>> {
        Rc::clone(&self.0)
    }
}

impl wit::Guest for Component {
    type Index = Index;
}

impl wit::GuestIndex for Index {
    fn open(options: wit::Options) -> Result<wit::Index, String> {
        Ok(wit::Index::new(Self(Rc::new(RefCell::new(State::open(options)?)))))
    }

    fn add_worker(&self, worker: wit::Worker) -> bool {
        self.0.borrow_mut().add_worker(worker)
    }

    fn remove_worker(&self, worker: wit::Worker) -> bool {
        self.0.borrow_mut().remove_worker(worker)
    }

    fn reset_worker(&self, worker: wit::Worker) -> bool {
        self.0.borrow_mut().reset_worker(worker)
    }

    fn workers(&self) -> Vec<wit::Worker> {
        self.0.borrow().seated().into_iter().map(|seated| seated.worker).collect()
    }

    fn apply(&self, worker: wit::Worker, events: Vec<wit::Event>, now_ms: u64) -> wit::Outcome {
        self.0.borrow_mut().apply(worker, events, now_ms)
    }

    fn matches(&self, prompt: wit::Prompt) -> Result<Vec<wit::Match>, String> {
        self.0.borrow_mut().matches(prompt)
    }

    fn stats(&self) -> wit::Stats {
        self.0.borrow().stats()
    }
}

// === impl State ===

impl State {
    pub(crate) fn open(options: wit::Options) -> Result<Self, String> {
        if options.block_size == 0 || options.block_size > MAX_BLOCK_SIZE {
            return Err(format!("block-size is {}; write 1 to {MAX_BLOCK_SIZE}", options.block_size));
        }
        let options = exact::Options {
            block_size: options.block_size,
            page_bits: PageBits::new(0).ok_or("there are no pages")?,
            max_orphans: options.max_orphans as usize,
        };
        Ok(Self { index: exact::Index::new(options, Generation(1)), ids: HashMap::new(), heard_at_ms: None })
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

    pub(crate) fn apply(
        &mut self,
        worker: wit::Worker,
        events: Vec<wit::Event>,
        now_ms: u64,
    ) -> wit::Outcome {
        self.heard(now_ms);
        let id = self.ids.get(&(worker.id, worker.rank)).copied();
        let mut sum = Applied::default();
        let mut failed = Vec::new();
        for (place, event) in (0..).zip(events) {
            let applied = match id {
                Some(id) => self.apply_one(id, event),
                None => Err(wit::EventError::UnknownWorker),
            };
            match applied {
                Ok(applied) => add(&mut sum, applied),
                Err(error) => failed.push((place, error)),
            }
        }
        self.tidy();
        wit::Outcome { applied: applied_out(sum), failed }
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

    fn apply_one(&mut self, id: WorkerId, event: wit::Event) -> Result<Applied, wit::EventError> {
        let applied = match event {
            wit::Event::Cleared => self.index.apply(id, &Event::Cleared),
            wit::Event::Removed(removed) => {
                let removed = Removed {
                    hashes: engine_hashes(removed.hashes),
                    left: removed.left,
                    tier: convert::tier(removed.tier),
                    group: Group(removed.group),
                };
                self.index.apply(id, &Event::Removed(removed))
            }
            wit::Event::Stored(stored) => self.store(id, stored)?,
        };
        applied.map_err(|error| match error {
            EventError::UnknownWorker => wit::EventError::UnknownWorker,
            EventError::BlockSize { actual, .. } => wit::EventError::BlockSize(actual),
            EventError::Misaligned { .. }
            | EventError::Media { .. }
            | EventError::Locals { .. }
            | EventError::Left { .. } => wit::EventError::Misaligned,
        })
    }

    fn store(
        &mut self,
        id: WorkerId,
        stored: wit::Stored,
    ) -> Result<Result<Applied, EventError>, wit::EventError> {
        let wit::Stored { hashes, parent, content, lora, salt, tier, group } = stored;
        let (hashes, parent) = (engine_hashes(hashes), parent.map(EngineHash));
        let (tier, group) = (convert::tier(tier), Group(group));
        let (tokens, block_size, media) = match content {
            wit::Content::Blocks(locals) => {
                let locals = locals.into_iter().map(LocalHash).collect();
                let stored = StoredLocals { hashes, parent, locals, lora, salt, tier, group };
                return Ok(self.index.apply_locals(id, &stored));
            }
            wit::Content::Tokens((tokens, block_size)) => (ids(tokens)?, block_size, Vec::new()),
            wit::Content::Media((tokens, block_size, media)) => (ids(tokens)?, block_size, media),
            wit::Content::Unknown => (Vec::new(), self.index.block_size(), Vec::new()),
        };
        let stored = Stored { hashes, parent, tokens, block_size, media, lora, salt, tier, group };
        Ok(self.index.apply(id, &Event::Stored(stored)))
    }

    /// Drops what nobody counts any more, and begins a generation where workers or pages ask for one.
    fn tidy(&mut self) {
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

fn engine_hashes(hashes: Vec<u64>) -> Vec<EngineHash> {
    hashes.into_iter().map(EngineHash).collect()
}

fn ids(tokens: wit::Tokens) -> Result<Vec<u32>, wit::EventError> {
    tokens::ids(tokens).map_err(wit::EventError::Tokens)
}

fn add(sum: &mut Applied, more: Applied) {
    let pairs = [
        (&mut sum.stored, more.stored),
        (&mut sum.removed, more.removed),
        (&mut sum.orphaned, more.orphaned),
        (&mut sum.attached, more.attached),
        (&mut sum.dropped_orphans, more.dropped_orphans),
        (&mut sum.renamed, more.renamed),
        (&mut sum.unknown_removed, more.unknown_removed),
        (&mut sum.skipped, more.skipped),
        (&mut sum.cleared, more.cleared),
    ];
    for (sum, more) in pairs {
        *sum = sum.saturating_add(more);
    }
}

fn applied_out(applied: Applied) -> wit::Applied {
    wit::Applied {
        stored: applied.stored,
        removed: applied.removed,
        orphaned: applied.orphaned,
        attached: applied.attached,
        dropped_orphans: applied.dropped_orphans,
        renamed: applied.renamed,
        unknown_removed: applied.unknown_removed,
        skipped: applied.skipped,
        cleared: applied.cleared,
    }
}
