//! Looking prompts up.

use dynamo_kv_router::indexer::ThreadPoolIndexer;
use dynamo_kv_router::protocols::{BlockHashOptions, compute_block_hash_for_seq};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree, SyncIndexer};
use std::hint::black_box;
use warmroute_routing::choose::{Candidate, Limits, Load, LongestPrefix, Prompt, Question, select};
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::page::Slot;

use super::report::{Report, Subject};
use super::stopwatch::time;
use crate::blocks::Chain;
use crate::dice::Dice;
use crate::engine::{Names, Rank, stored};
use crate::ours::{OurEvent, Ours, Pages};
use crate::theirs;

/// Blocks of all prompts of a case together: more than the processor's caches hold.
const BLOCKS: usize = 1 << 16;
/// Lookups in a round, in blocks.
const LOOKED_UP: usize = 1 << 19;
/// The filter's own defaults.
const LIMITS: Limits = Limits { max_reads: 64, choices: 3 };

/// How deep the workers match a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depths {
    /// All of them hold all of it.
    Full,
    /// Nobody holds anything.
    None,
    /// Each another part of it.
    Mixed,
    /// All hold the first quarter, one of them everything.
    OneConversation,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    depths: Depths,
    blocks: usize,
    workers: u32,
}

/// All sides with the same in them.
struct Sides {
    prompts: Vec<Chain>,
    ours: Ours,
    pages: Pages,
    tree: RadixTree,
    concurrent: ThreadPoolIndexer<ConcurrentRadixTreeCompressed>,
}

/// Adds the rows.
pub fn run(report: &mut Report, rounds: usize) {
    report.heading("Lookups: one prompt each");
    hashing(report, rounds);
    let case = |depths, blocks, workers| Case { depths, blocks, workers };
    let by_length = [8, 64, 512, 2048, 8192].map(|blocks| case(Depths::Mixed, blocks, 64));
    let by_workers = [1, 8, 512].map(|workers| case(Depths::Mixed, 512, workers));
    let by_match = [Depths::Full, Depths::None, Depths::OneConversation].map(|depths| case(depths, 512, 64));
    for case in by_match.into_iter().chain(by_length).chain(by_workers) {
        lookups(report, rounds, case);
    }
}

fn hashing(report: &mut Report, rounds: usize) {
    let mut dice = Dice::new(1);
    let tokens: Vec<u32> = (0..8192).map(|_| dice.any() as u32 % 128_000).collect();
    let repeat =
        |work: &dyn Fn(&[u32])| time(|| (0..200).inspect(|_| work(black_box(&tokens))).count() as u64);
    let subjects = vec![
        Subject::new("warmroute", || {
            repeat(&|tokens| {
                black_box(sequence_hashes(tokens, 16, Namespace::default()));
            })
        }),
        Subject::new("dynamo (local hashes only)", || {
            repeat(&|tokens| {
                black_box(compute_block_hash_for_seq(tokens, 16, BlockHashOptions::default()));
            })
        }),
    ];
    report.rounds("hashing 8,192 tokens into 512 blocks", rounds, subjects);
}

fn lookups(report: &mut Report, rounds: usize, case: Case) {
    let sides = Sides::new(case);
    let Case { depths, blocks, workers } = case;
    let name = format!("{depths:?}: {blocks} blocks, {workers} workers");
    let shape = sides.ours.shape();
    let slots: Vec<Slot> = sides.ours.index.workers().map(|(_, _, slot)| slot).collect();
    let candidates: Vec<_> =
        slots.iter().map(|slot| Candidate { slot: *slot, load: Load::default() }).collect();
    let live = |slot: Slot| candidates.binary_search_by_key(&slot, |candidate| candidate.slot).is_ok();
    let asked = Dice::new(9);
    let times = (LOOKED_UP / blocks).clamp(64, 4096);
    let which: Vec<usize> = std::iter::repeat_with({
        let mut dice = asked;
        let count = sides.prompts.len();
        move || dice.below(count)
    })
    .take(times)
    .collect();
    let prompts = &sides.prompts;
    let mut reads = Vec::new();
    let pages = &sides.pages;
    let subjects = vec![
        Subject::new("warmroute, all depths", || {
            time(|| {
                which
                    .iter()
                    .inspect(|i| {
                        black_box(pages.lookup(shape, live, &prompts[**i].hashes));
                    })
                    .count() as u64
            })
        }),
        Subject::new("warmroute, as the filter", || {
            time(|| {
                which
                    .iter()
                    .inspect(|i| {
                        let prompt =
                            Prompt { blocks: blocks as u32, tokens: 16 * blocks as u64, block_size: 16 };
                        let question = Question {
                            prompt,
                            candidates: &candidates,
                            policy: &LongestPrefix,
                            limits: LIMITS,
                            tie: 0,
                        };
                        let selection = select(&mut pages.reader(), shape, &prompts[**i].hashes, &question);
                        reads.push(f64::from(selection.reads));
                        black_box(selection);
                    })
                    .count() as u64
            })
        }),
        Subject::new("dynamo radix tree", || {
            let asked: Vec<_> = which.iter().map(|i| theirs::prompt(&prompts[*i].locals)).collect();
            time(|| {
                asked.into_iter().map(|prompt| black_box(sides.tree.find_matches(prompt, false))).count()
                    as u64
            })
        }),
        Subject::new("dynamo concurrent", || {
            let asked: Vec<_> = which.iter().map(|i| theirs::prompt(&prompts[*i].locals)).collect();
            time(|| {
                asked
                    .into_iter()
                    .map(|prompt| black_box(sides.concurrent.backend().find_matches(&prompt, false)))
                    .count() as u64
            })
        }),
    ];
    report.rounds(&name, rounds, subjects);
    reads.sort_by(f64::total_cmp);
    let at = |percent: usize| reads[(reads.len() - 1) * percent / 100];
    report.add(&name, "warmroute, as the filter", [("reads_p50", at(50)), ("reads_p99", at(99))]);
}

// === impl Sides ===

impl Sides {
    fn new(case: Case) -> Self {
        let Case { depths, blocks, workers } = case;
        let mut dice = Dice::new(7);
        let count = (BLOCKS / blocks).clamp(4, 1024);
        let trunk = Chain::drawn(3, blocks);
        let prompts: Vec<_> = (0..count as u64).map(|i| trunk.forked(blocks / 4, 100 + i, blocks)).collect();
        let ranks = (0..workers).map(|engine| Rank { engine, rank: 0 });
        let bits = (count * blocks / 12).next_power_of_two().ilog2() as u8;
        let mut ours = Ours::new(bits, ranks.clone());
        let mut tree = RadixTree::new();
        let concurrent = ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, 16);
        let held: Vec<_> = if depths == Depths::None {
            (0..4).map(|i| Chain::drawn(1 << 20 | i, blocks)).collect()
        } else {
            prompts.clone()
        };
        let mut id = 0;
        for (i, prompt) in held.iter().enumerate() {
            for rank in ranks.clone() {
                let depth = match depths {
                    Depths::Full | Depths::None => blocks,
                    Depths::Mixed => dice.below(blocks + 1),
                    Depths::OneConversation if rank.engine == i as u32 % workers => blocks,
                    Depths::OneConversation => blocks / 4,
                };
                if depth == 0 {
                    continue;
                }
                id += 1;
                let told = stored(prompt, 0..depth, Names::Shared, rank);
                ours.apply(ours.worker(rank), &OurEvent::new(&told));
                tree.apply_event(theirs::event(rank, id, &told)).expect("a store from a prompt's start");
                concurrent.enqueue_event(theirs::event(rank, id, &told)).expect("an indexer that runs");
            }
        }
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(concurrent.flush());
        let pages = ours.pages();
        Self { prompts, ours, pages, tree, concurrent }
    }
}
