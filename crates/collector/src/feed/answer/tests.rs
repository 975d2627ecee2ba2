use std::collections::BTreeMap;

use proptest::prelude::*;
use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored};
use warmroute_index::{Options, WorkerId, WorkerIdentity};
use warmroute_routing::Tier;
use warmroute_routing::feed::Answer as Decoded;
use warmroute_routing::page::{Generation, Page, PageBits};
use warmroute_routing::pool::{Worker, WorkerState};

use super::*;

fn pool_of(index: &Index) -> Pool {
    let mut workers: Vec<_> = index
        .workers()
        .map(|(_, identity, slot)| Worker {
            slot,
            address: identity.address.parse().unwrap(),
            rank: identity.rank,
            state: WorkerState::Up,
        })
        .collect();
    workers.sort_by_key(|worker| worker.slot);
    Pool {
        generation: index.generation(),
        page_bits: index.page_bits(),
        block_size: 1,
        base_models: vec![],
        namespaced: index.is_namespaced(),
        workers,
    }
}

/// Pages by number, each with its blocks and their live holders.
type Content = Vec<(u32, Vec<(u64, Vec<u16>)>)>;

/// A publisher's copy.
#[derive(Default)]
struct Mirror {
    cursor: Option<Cursor>,
    pages: BTreeMap<u32, Vec<u8>>,
}

impl Mirror {
    fn poll(&mut self, index: &mut Index, max_bytes: u32) -> AnswerKind {
        let cursor = self.cursor.unwrap_or(Cursor::START);
        let pool = pool_of(index);
        let answer = answer(index, &pool, &Request { cursor, wait_ms: 0, max_bytes });
        let decoded = Decoded::decode(&answer.bytes).unwrap();
        assert_eq!(decoded.pages.len(), answer.pages as usize);
        assert!(
            decoded.pages.len() <= 1
                || decoded.pages.iter().map(|(_, page)| page.len()).sum::<usize>() <= max_bytes as usize
        );
        if decoded.cursor.generation != cursor.generation {
            self.pages.clear();
        }
        for (page, bytes) in &decoded.pages {
            self.pages.insert(page.header().number, bytes.to_vec());
        }
        self.cursor = Some(decoded.cursor);
        answer.kind
    }

    fn catch_up(&mut self, index: &mut Index, max_bytes: u32) {
        while self.poll(index, max_bytes) != AnswerKind::Unchanged {}
    }

    /// Every page that is not empty, without what may differ: its version, and holders that are not live.
    fn content(&self, pool: &Pool) -> Content {
        content_of(self.pages.values().map(Vec::as_slice), pool)
    }
}

fn content_of<'a>(pages: impl Iterator<Item = &'a [u8]>, pool: &Pool) -> Content {
    let content = pages.map(|bytes| {
        let page = Page::parse(bytes).unwrap();
        let live = |slot: &u16| pool.workers.iter().any(|worker| worker.slot.number() == *slot);
        let records = page.records().map(|(hash, record)| {
            (
                hash.0,
                record.holders.iter().map(|holder| holder.slot.number()).filter(live).collect::<Vec<_>>(),
            )
        });
        (page.header().number, records.filter(|(_, holders)| !holders.is_empty()).collect::<Vec<_>>())
    });
    content.filter(|(_, records)| !records.is_empty()).collect()
}

#[derive(Clone, Debug)]
enum Move {
    Store { worker: usize, first: u32, blocks: u32 },
    Remove { worker: usize, block: u32 },
    Reset { worker: usize },
    Purge,
    Generation { bits: u8 },
    Poll { max_bytes: u32 },
}

fn any_move() -> impl Strategy<Value = Move> {
    let worker = 0..3_usize;
    prop_oneof![
        4 => (worker.clone(), 0..50_u32, 1..20_u32).prop_map(|(worker, first, blocks)| Move::Store { worker, first, blocks }),
        2 => (worker.clone(), 0..70_u32).prop_map(|(worker, block)| Move::Remove { worker, block }),
        1 => worker.prop_map(|worker| Move::Reset { worker }),
        1 => Just(Move::Purge),
        1 => (0..6_u8).prop_map(|bits| Move::Generation { bits }),
        4 => (0..300_u32).prop_map(|max_bytes| Move::Poll { max_bytes }),
    ]
}

/// A chain of blocks of one token, each named by its token.
fn store(first: u32, blocks: u32) -> Event {
    let tokens: Vec<_> = (first..first + blocks).collect();
    Event::Stored(Stored {
        hashes: tokens.iter().map(|token| EngineHash(u64::from(*token))).collect(),
        parent: first.checked_sub(1).map(|parent| EngineHash(u64::from(parent))),
        tokens,
        block_size: 1,
        media: vec![],
        lora: None,
        salt: None,
        tier: Tier::Gpu,
        group: Group(0),
    })
}

proptest! {
    /// Whatever changes between and during its polls, a publisher that follows the cursor ends with the index's pages.
    #[test]
    fn a_mirror_becomes_the_index(
        moves in proptest::collection::vec(any_move(), 0..60),
        max_bytes in 0..2000_u32,
    ) {
        let options = Options { block_size: 1, page_bits: PageBits::new(3).unwrap(), max_orphans: 100 };
        let mut index = Index::new(options, Generation(1));
        let workers: Vec<WorkerId> = (0..3)
            .map(|i| index.add_worker(WorkerIdentity { address: format!("10.0.0.{i}:80"), rank: 0 }).unwrap())
            .collect();
        let mut mirror = Mirror::default();
        for step in moves {
            match step {
                Move::Store { worker, first, blocks } => drop(index.apply(workers[worker], &store(first, blocks))),
                Move::Remove { worker, block } => {
                    let hashes = vec![EngineHash(u64::from(block))];
                    let removed = Removed { hashes, left: vec![], tier: Tier::Gpu, group: Group(0) };
                    index.apply(workers[worker], &Event::Removed(removed)).unwrap();
                }
                Move::Reset { worker } => index.reset_worker(workers[worker]),
                Move::Purge => drop(index.purge(5)),
                Move::Generation { bits } => {
                    let generation = Generation(index.generation().0 + 1);
                    index.begin_generation(generation, PageBits::new(bits).unwrap());
                }
                Move::Poll { max_bytes } => drop(mirror.poll(&mut index, max_bytes)),
            }
        }
        mirror.catch_up(&mut index, max_bytes);
        let pool = pool_of(&index);
        let pages: Vec<_> = (0..pool.page_bits.page_count()).map(|number| index.page(number)).collect();
        prop_assert_eq!(mirror.content(&pool), content_of(pages.iter().map(Vec::as_slice), &pool));
        prop_assert_eq!(mirror.cursor.unwrap().position, index.version());
    }
}

#[test]
fn a_page_larger_than_the_bound_is_sent_alone() {
    let options = Options { block_size: 1, page_bits: PageBits::new(0).unwrap(), max_orphans: 0 };
    let mut index = Index::new(options, Generation(1));
    let worker = index.add_worker(WorkerIdentity { address: "10.0.0.1:80".into(), rank: 0 }).unwrap();
    index.apply(worker, &store(0, 100)).unwrap();
    let mut mirror = Mirror::default();
    assert_eq!(mirror.poll(&mut index, 0), AnswerKind::Copy);
    assert_eq!(mirror.pages.len(), 1);
    assert_eq!(mirror.poll(&mut index, 0), AnswerKind::Unchanged);
}

#[test]
fn a_position_ahead_of_the_index_begins_a_full_copy() {
    let options = Options { block_size: 1, page_bits: PageBits::new(2).unwrap(), max_orphans: 0 };
    let mut index = Index::new(options, Generation(1));
    let mut mirror = Mirror::default();
    mirror.catch_up(&mut index, 1000);
    mirror.cursor.as_mut().unwrap().position += 1000;
    assert_eq!(mirror.poll(&mut index, 1000), AnswerKind::Copy);
}
