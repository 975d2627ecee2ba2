//! The index, from the engines' events to the pages that a lookup reads.

use std::rc::Rc;

use anyhow::{Context, Result};
use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored};
use warmroute_index::{Index, Options, WorkerId, WorkerIdentity};
use warmroute_routing::Tier;
use warmroute_routing::hash::SequenceHash;
use warmroute_routing::lookup::{Depths, IndexShape, PageStore, RefineAll, Scope, lookup};
use warmroute_routing::page::{Generation, PageBits, Slot};
use warmroute_simengine::cache::CacheEvent;

/// Enough for a page to hold few blocks.
const PAGE_BITS: u8 = 12;
pub(super) const GENERATION: Generation = Generation(1);

/// The collector's index, with the pages that were read since they last changed.
pub(crate) struct LiveIndex {
    index: Index,
    workers: Vec<WorkerId>,
    pages: Vec<Option<(u64, Rc<[u8]>)>>,
    block_size: u32,
}

// === impl LiveIndex ===

impl LiveIndex {
    pub(crate) fn new(workers: usize, block_size: u32) -> Result<Self> {
        let page_bits = PageBits::new(PAGE_BITS).context("too many pages")?;
        let options = Options { block_size, page_bits, max_orphans: 1_000 };
        let mut index = Index::new(options, GENERATION);
        let identity = |worker: usize| WorkerIdentity { address: format!("10.0.0.{worker}:8000"), rank: 0 };
        let workers = (0..workers).map(|worker| index.add_worker(identity(worker)));
        let workers = workers.collect::<Result<_, _>>()?;
        let pages = vec![None; page_bits.page_count() as usize];
        Ok(Self { index, workers, pages, block_size })
    }

    pub(super) fn shape(&self) -> IndexShape {
        IndexShape { generation: self.index.generation(), page_bits: self.index.page_bits() }
    }

    /// The workers' slots, in the workers' order.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.index.workers().map(|(_, _, slot)| slot)
    }

    pub(crate) fn apply(&mut self, worker: usize, events: &[CacheEvent]) -> Result<()> {
        let worker = *self.workers.get(worker).context("an event came from a worker that is not there")?;
        for event in events {
            self.index.apply(worker, &translate(event, self.block_size))?;
        }
        Ok(())
    }

    /// What each worker holds of a prompt.
    pub(crate) fn depths(&mut self, hashes: &[SequenceHash]) -> Vec<Depths> {
        let (shape, mut depths) = (self.shape(), vec![Depths::default(); self.workers.len()]);
        let scope = Scope { store: self, shape, live: |_| true, max_reads: u32::MAX };
        for found in &lookup(scope, hashes, &mut RefineAll).workers {
            if let Some(known) = depths.get_mut(usize::from(found.slot.number())) {
                *known = found.at_least;
            }
        }
        depths
    }
}

impl PageStore for LiveIndex {
    type Bytes = Rc<[u8]>;

    fn read(&mut self, page: u32) -> Option<Rc<[u8]>> {
        let version = self.index.page_version(page);
        let known = self.pages.get_mut(page as usize)?;
        match known {
            Some((of, bytes)) if *of == version => Some(Rc::clone(bytes)),
            _ => {
                let bytes: Rc<[u8]> = self.index.page(page).into();
                *known = Some((version, Rc::clone(&bytes)));
                Some(bytes)
            }
        }
    }
}

fn translate(event: &CacheEvent, block_size: u32) -> Event {
    match event {
        CacheEvent::Stored(blocks) => Event::Stored(Stored {
            hashes: blocks.hashes.iter().map(|hash| EngineHash(hash.low64())).collect(),
            parent: blocks.parent.map(|hash| EngineHash(hash.low64())),
            tokens: blocks.tokens.clone(),
            block_size,
            media: Vec::new(),
            lora: None,
            salt: None,
            tier: Tier::Gpu,
            group: Group(0),
        }),
        CacheEvent::Removed(hash) => Event::Removed(Removed {
            hashes: vec![EngineHash(hash.low64())],
            left: Vec::new(),
            tier: Tier::Gpu,
            group: Group(0),
        }),
        CacheEvent::Cleared => Event::Cleared,
    }
}
