//! Reading an index as a router does: through its pages.
#![allow(dead_code, reason = "each test crate uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};

use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored};
use warmroute_index::{Index, Options, WorkerId, WorkerIdentity};
use warmroute_routing::Tier;
use warmroute_routing::hash::SequenceHash;
use warmroute_routing::page::{Generation, Page, PageBits, RUN_BLOCKS, Slot};

/// What pages tell of the workers that are listed.
pub(crate) type Records = BTreeMap<SequenceHash, BTreeMap<Slot, Tier>>;

pub(crate) fn bits(bits: u8) -> PageBits {
    PageBits::new(bits).unwrap()
}

pub(crate) fn index(block_size: u32, page_bits: u8) -> Index {
    let options = Options { block_size, page_bits: bits(page_bits), max_orphans: 8 };
    Index::new(options, Generation(1))
}

pub(crate) fn identity(number: u32) -> WorkerIdentity {
    WorkerIdentity { address: format!("10.0.0.{}:8000", number / 2), rank: number % 2 }
}

/// A store of blocks of one token each, which is also their name.
pub(crate) fn stored(parent: Option<u64>, blocks: &[u32]) -> Stored {
    Stored {
        hashes: blocks.iter().map(|token| EngineHash(u64::from(*token))).collect(),
        parent: parent.map(EngineHash),
        tokens: blocks.to_vec(),
        block_size: 1,
        media: vec![],
        lora: None,
        salt: None,
        tier: Tier::Gpu,
        group: Group(0),
    }
}

pub(crate) fn removed(blocks: &[u32]) -> Event {
    let hashes = blocks.iter().map(|token| EngineHash(u64::from(*token))).collect();
    Event::Removed(Removed { hashes, left: vec![], tier: Tier::Gpu, group: Group(0) })
}

pub(crate) fn listed(index: &Index) -> BTreeSet<Slot> {
    index.workers().map(|(_, _, slot)| slot).collect()
}

pub(crate) fn slot_of(index: &Index, worker: WorkerId) -> Slot {
    index.workers().find(|(id, ..)| *id == worker).unwrap().2
}

/// A page's records of listed workers.
pub(crate) fn read_page(bytes: &[u8], listed: &BTreeSet<Slot>) -> Records {
    let page = Page::parse(bytes).unwrap();
    page.verify().unwrap();
    let mut records = Records::new();
    for (hash, record) in page.records() {
        for holder in record.holders.iter().filter(|holder| listed.contains(&holder.slot)) {
            records.entry(hash).or_default().insert(holder.slot, holder.tier);
        }
    }
    records
}

/// Every page's.
pub(crate) fn read_all(index: &mut Index) -> Records {
    let listed = listed(index);
    (0..index.page_bits().page_count()).flat_map(|number| read_page(&index.page(number), &listed)).collect()
}

/// How many blocks of the prompt are published for the worker, from the first on, in this tier or a faster one.
pub(crate) fn depth_in(index: &mut Index, worker: WorkerId, prompt: &[SequenceHash], tier: Tier) -> usize {
    let Some((_, _, slot)) = index.workers().find(|(id, ..)| *id == worker) else { return 0 };
    let mut holds = |block: usize| {
        let (hash, head) = (prompt[block], prompt[block - block % RUN_BLOCKS as usize]);
        let mut record_in = |page_of| {
            let bytes = index.page(index.page_bits().page_of(page_of));
            let page = Page::parse(&bytes).unwrap();
            let is_crowded = page.find(head).is_some_and(|head| head.crowded);
            let holders = page.find(hash).map(|record| record.holders.iter().collect::<Vec<_>>());
            (holders, is_crowded)
        };
        let (holders, is_crowded) = record_in(head);
        let holders = if is_crowded { record_in(hash).0 } else { holders };
        holders.into_iter().flatten().any(|holder| holder.slot == slot && holder.tier <= tier)
    };
    (0..prompt.len()).take_while(|block| holds(*block)).count()
}

/// How many blocks of the prompt are published for the worker, from the first on.
pub(crate) fn depth(index: &mut Index, worker: WorkerId, prompt: &[SequenceHash]) -> usize {
    depth_in(index, worker, prompt, Tier::External)
}
