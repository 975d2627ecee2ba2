//! Our side: the index, and lookups in the pages that it writes.

use std::collections::{BTreeMap, HashMap};

use warmroute_index::event::{EngineHash, Event, Group, Removed, StoredLocals};
use warmroute_index::{Index, Options, WorkerId, WorkerIdentity};
use warmroute_routing::Tier;
use warmroute_routing::hash::SequenceHash;
use warmroute_routing::lookup::{IndexShape, Matches, PageStore, RefineAll, Scope, lookup};
use warmroute_routing::page::{Generation, PageBits, Slot};

use crate::engine::{Rank, Told};

/// An index and its workers.
#[derive(Debug)]
pub struct Ours {
    /// The index.
    pub index: Index,
    workers: BTreeMap<Rank, WorkerId>,
}

/// An event in our index's terms.
#[derive(Clone, Debug)]
pub enum OurEvent {
    /// Blocks by the hashes of their contents.
    Stored(StoredLocals),
    /// Anything else.
    Other(Event),
}

/// Pages as a proxy keeps them.
#[derive(Clone, Debug, Default)]
pub struct Pages(pub Vec<Vec<u8>>);

// === impl OurEvent ===

impl OurEvent {
    /// What was told, in our terms.
    pub fn new(told: &Told) -> Self {
        let (tier, group) = (Tier::Gpu, Group(0));
        match told {
            Told::Stored { parent, blocks } => Self::Stored(StoredLocals {
                hashes: blocks.iter().map(|(name, _)| EngineHash(*name)).collect(),
                parent: parent.map(EngineHash),
                locals: blocks.iter().map(|(_, local)| *local).collect(),
                lora: None,
                salt: None,
                tier,
                group,
            }),
            Told::Removed(names) => Self::Other(Event::Removed(Removed {
                hashes: names.iter().copied().map(EngineHash).collect(),
                left: vec![],
                tier,
                group,
            })),
            Told::Cleared => Self::Other(Event::Cleared),
        }
    }
}

// === impl Ours ===

impl Ours {
    /// An index with `2^page_bits` pages and these workers.
    pub fn new(page_bits: u8, ranks: impl IntoIterator<Item = Rank>) -> Self {
        let page_bits = PageBits::new(page_bits).expect("a number of pages that is allowed");
        let options = Options { block_size: 16, page_bits, max_orphans: 1 << 20 };
        let mut index = Index::new(options, Generation(1));
        let workers = ranks
            .into_iter()
            .map(|rank| {
                let address = format!("10.0.{}.{}:8000", rank.engine / 250, rank.engine % 250);
                let id = index.add_worker(WorkerIdentity { address, rank: rank.rank });
                (rank, id.expect("workers that differ"))
            })
            .collect();
        Self { index, workers }
    }

    /// The handle of a rank.
    pub fn worker(&self, rank: Rank) -> WorkerId {
        self.workers[&rank]
    }

    /// Applies an event.
    pub fn apply(&mut self, worker: WorkerId, event: &OurEvent) {
        let applied = match event {
            OurEvent::Stored(stored) => self.index.apply_locals(worker, stored),
            OurEvent::Other(event) => self.index.apply(worker, event),
        };
        applied.expect("an event that fits the index");
    }

    /// Takes as many pages as the collector would.
    pub fn grow(&mut self) {
        while let Some(page_bits) = self.index.wants_pages() {
            self.index.begin_generation(Generation(self.index.generation().0 + 1), page_bits);
        }
    }

    /// The index's shape, as a reader knows it.
    pub fn shape(&self) -> IndexShape {
        IndexShape { generation: self.index.generation(), page_bits: self.index.page_bits() }
    }

    /// Every page.
    pub fn pages(&mut self) -> Pages {
        Pages((0..self.index.page_bits().page_count()).map(|number| self.index.page(number)).collect())
    }

    /// The workers' slots.
    pub fn slots(&self) -> HashMap<Slot, Rank> {
        let ranks: HashMap<_, _> = self.workers.iter().map(|(rank, id)| (*id, *rank)).collect();
        self.index.workers().filter_map(|(id, _, slot)| Some((slot, *ranks.get(&id)?))).collect()
    }

    /// How deep each rank matches, as the filter would find it in the pages.
    pub fn depths(&mut self, hashes: &[SequenceHash]) -> BTreeMap<Rank, u32> {
        let (shape, slots) = (self.shape(), self.slots());
        let pages = self.pages();
        let found = pages.lookup(shape, |slot| slots.contains_key(&slot), hashes);
        found
            .workers
            .iter()
            .filter_map(|found| Some((*slots.get(&found.slot)?, found.at_least.any())))
            .collect()
    }
}

// === impl Pages ===

impl Pages {
    /// The pages, for a lookup.
    pub fn reader(&self) -> impl PageStore {
        Borrowed(&self.0)
    }

    /// Looks up every worker's exact depth.
    pub fn lookup(&self, shape: IndexShape, live: impl Fn(Slot) -> bool, hashes: &[SequenceHash]) -> Matches {
        lookup(Scope { store: &mut self.reader(), shape, live, max_reads: u32::MAX }, hashes, &mut RefineAll)
    }
}

/// Pages that are read where they are.
struct Borrowed<'a>(&'a [Vec<u8>]);

impl<'a> PageStore for Borrowed<'a> {
    type Bytes = &'a [u8];

    fn read(&mut self, page: u32) -> Option<&'a [u8]> {
        self.0.get(page as usize).map(Vec::as_slice)
    }
}
