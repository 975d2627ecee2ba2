//! The same steps through the component and natively give the same values, to the last bit.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use warmroute_host::{Warmroute, prefix_index, router, types};
use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored};
use warmroute_index::{Index, Options, WorkerId, WorkerIdentity};
use warmroute_routing::Tier;
use warmroute_routing::choose::{Candidate, Limits, Load, Prompt, Question, Rule, Selection, select};
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::lookup::{IndexShape, PageStore};
use warmroute_routing::page::{Generation, PageBits, Slot};

const BLOCK_SIZE: u32 = 4;
const WORKERS: u64 = 5;

/// What happens, in terms of both sides.
#[derive(Clone, Debug)]
enum Step {
    /// A worker stores the first blocks of a prompt.
    Store { worker: u64, prompt: u32, blocks: u32, tier: u8 },
    /// A worker drops one block of a prompt.
    Remove { worker: u64, prompt: u32, block: u32, tier: u8 },
    /// A worker's cache is emptied.
    Clear { worker: u64 },
    /// A request asks for a worker, and stays in flight.
    Select { prompt: u32, blocks: u32 },
    /// The oldest request in flight ends.
    Free,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (worker, prompt, tier) = (1..=WORKERS, 0..4u32, 0..4u8);
    let step = prop_oneof![
        4 => (worker.clone(), prompt.clone(), 1..12u32, tier.clone())
            .prop_map(|(worker, prompt, blocks, tier)| Step::Store { worker, prompt, blocks, tier }),
        2 => (worker.clone(), prompt.clone(), 0..12u32, tier)
            .prop_map(|(worker, prompt, block, tier)| Step::Remove { worker, prompt, block, tier }),
        1 => worker.prop_map(|worker| Step::Clear { worker }),
        4 => (prompt, 1..14u32).prop_map(|(prompt, blocks)| Step::Select { prompt, blocks }),
        1 => Just(Step::Free),
    ];
    prop::collection::vec(step, 1..60)
}

/// A prompt's tokens; those of two prompts are alike for the first three blocks.
fn tokens(prompt: u32, blocks: u32) -> Vec<u32> {
    let token = |i: u32| if i < 3 * BLOCK_SIZE { i } else { i + 1_000 * prompt };
    (0..blocks * BLOCK_SIZE).map(token).collect()
}

fn engine_hash(prompt: u32, block: u32) -> u64 {
    if block < 3 { u64::from(block) } else { u64::from(block + 1_000 * (prompt + 1)) }
}

/// The core itself.
struct Native {
    index: Index,
    workers: BTreeMap<u64, WorkerId>,
    loads: BTreeMap<u64, Load>,
    rule: Rule,
    selections: u64,
}

struct Pages<'a>(&'a mut Index);

impl PageStore for Pages<'_> {
    type Bytes = Vec<u8>;

    fn read(&mut self, page: u32) -> Option<Vec<u8>> {
        Some(self.0.page(page))
    }
}

impl Native {
    fn new(rule: Rule) -> Self {
        let options =
            Options { block_size: BLOCK_SIZE, page_bits: PageBits::new(0).unwrap(), max_orphans: 100 };
        let mut index = Index::new(options, Generation(1));
        let mut add =
            |id: u64| index.add_worker(WorkerIdentity { address: id.to_string(), rank: 0 }).unwrap();
        let workers = (1..=WORKERS).map(|id| (id, add(id))).collect();
        Self { index, workers, loads: BTreeMap::new(), rule, selections: 0 }
    }

    fn apply(&mut self, worker: u64, event: &Event) {
        self.index.apply(self.workers[&worker], event).unwrap();
        // As the component does: a generation numbers the slots anew, and among equals their order decides.
        self.index.purge(4_096);
        let more = self.index.wants_pages();
        if more.is_some() || self.index.needs_generation() {
            let next = Generation(self.index.generation().0 + 1);
            self.index.begin_generation(next, more.unwrap_or(self.index.page_bits()));
        }
    }

    fn select(&mut self, tokens: &[u32]) -> (Selection, Vec<(Slot, u64)>) {
        let id = |identity: &WorkerIdentity| identity.address.parse::<u64>().unwrap();
        let mut slots: Vec<_> = self.index.workers().map(|(_, who, slot)| (slot, id(who))).collect();
        slots.sort_unstable();
        let load = |id: &u64| self.loads.get(id).copied().unwrap_or_default();
        let candidates: Vec<_> =
            slots.iter().map(|(slot, id)| Candidate { slot: *slot, load: load(id) }).collect();
        self.selections += 1;
        let hashes = sequence_hashes(tokens, BLOCK_SIZE, Namespace::default());
        let question = Question {
            prompt: Prompt {
                blocks: hashes.len() as u32,
                tokens: tokens.len() as u64,
                block_size: BLOCK_SIZE,
            },
            candidates: &candidates,
            policy: &self.rule,
            limits: Limits { max_reads: u32::MAX, choices: 3 },
            tie: self.selections,
        };
        let shape = IndexShape { generation: self.index.generation(), page_bits: self.index.page_bits() };
        (select(&mut Pages(&mut self.index), shape, &hashes, &question), slots)
    }
}

fn run(host: &mut Warmroute, policy: router::Policy, rule: Rule, steps: Vec<Step>) {
    let Warmroute { store, world } = host;
    let (index_calls, router_calls) =
        (world.warmroute_routing_prefix_index(), world.warmroute_routing_router());
    let (indexes, routers) = (index_calls.index(), router_calls.router());
    let options = prefix_index::Options { block_size: BLOCK_SIZE, max_orphans: 100 };
    let index = indexes.call_open(&mut *store, options).unwrap().unwrap();
    for id in 1..=WORKERS {
        assert!(indexes.call_add_worker(&mut *store, index, types::Worker { id, rank: 0 }).unwrap());
    }
    let settings = router::Settings { policy, max_age_ms: None, booking_life_ms: 1_000_000 };
    let desk = routers.call_open(&mut *store, index, settings).unwrap().unwrap();
    indexes.call_apply(&mut *store, index, types::Worker { id: 1, rank: 0 }, &[], 0).unwrap();

    let mut native = Native::new(rule);
    let mut in_flight: Vec<(String, u64, u64, u64)> = Vec::new();
    for (now_ms, step) in (0..).zip(steps) {
        let events = both(&step);
        if let Some((worker, native_event, event)) = events {
            native.apply(worker, &native_event);
            let worker = types::Worker { id: worker, rank: 0 };
            let outcome = indexes.call_apply(&mut *store, index, worker, &[event], now_ms).unwrap();
            assert_eq!(outcome.failed, []);
            continue;
        }
        if let Step::Select { prompt, blocks } = step {
            let tokens = tokens(prompt, blocks);
            let (expected, slots) = native.select(&tokens);
            let name = format!("request-{now_ms}");
            let plain = types::Namespace { lora: None, salt: None };
            let selection = routers
                .call_select_worker(
                    &mut *store,
                    desk,
                    &name,
                    &types::Prompt::Tokens((types::Tokens::Ids(tokens.clone()), plain)),
                    &router::Candidates::All,
                    router::Options { ranked: 3, book: true, now_ms },
                )
                .unwrap()
                .unwrap();
            let worker = |slot| slots.iter().find(|(known, _)| *known == slot).unwrap().1;
            let expected: Vec<_> = expected
                .choices
                .iter()
                .map(|choice| {
                    let depths = Tier::ALL.map(|tier| choice.depths.within(tier));
                    (worker(choice.slot), depths, choice.cost.first.to_bits(), choice.cost.then.to_bits())
                })
                .collect();
            let got = |ranked: &router::Ranked| {
                let depths = &ranked.depths;
                let depths = [depths.gpu, depths.cpu, depths.disk, depths.external];
                (ranked.worker.id, depths, ranked.cost.first.to_bits(), ranked.cost.then.to_bits())
            };
            assert_eq!(selection.ranked.iter().map(got).collect::<Vec<_>>(), expected);
            assert_eq!(selection.worker, selection.ranked[0].worker);

            let cached = u64::from(selection.depths.external * BLOCK_SIZE);
            let (prefill, blocks) = (tokens.len() as u64 - cached, u64::from(blocks));
            let load = native.loads.entry(selection.worker.id).or_default();
            *load = Load {
                requests: load.requests + 1,
                prefill_tokens: load.prefill_tokens + prefill,
                blocks: load.blocks + blocks,
            };
            in_flight.push((name, selection.worker.id, prefill, blocks));
        } else if !in_flight.is_empty() {
            let (name, worker, prefill, blocks) = in_flight.remove(0);
            assert!(routers.call_free(&mut *store, desk, &name).unwrap());
            let load = native.loads.get_mut(&worker).unwrap();
            *load = Load {
                requests: load.requests - 1,
                prefill_tokens: load.prefill_tokens - prefill,
                blocks: load.blocks - blocks,
            };
        }
    }
    for (worker, load) in routers.call_loads(&mut *store, desk).unwrap() {
        let expected = native.loads.get(&worker.id).copied().unwrap_or_default();
        let expected = types::Load {
            requests: expected.requests,
            prefill_tokens: expected.prefill_tokens,
            blocks: expected.blocks,
        };
        assert_eq!(load, expected);
    }
    desk.resource_drop(&mut *store).unwrap();
    index.resource_drop(&mut *store).unwrap();
}

/// A cache's change as each side takes it.
fn both(step: &Step) -> Option<(u64, Event, prefix_index::Event)> {
    const TIERS: [types::Tier; 4] =
        [types::Tier::Gpu, types::Tier::Cpu, types::Tier::Disk, types::Tier::External];
    Some(match *step {
        Step::Store { worker, prompt, blocks, tier } => {
            let hashes: Vec<u64> = (0..blocks).map(|block| engine_hash(prompt, block)).collect();
            let tokens = tokens(prompt, blocks);
            let stored = Stored {
                hashes: hashes.iter().copied().map(EngineHash).collect(),
                parent: None,
                tokens: tokens.clone(),
                block_size: BLOCK_SIZE,
                media: vec![],
                lora: None,
                salt: None,
                tier: Tier::ALL[usize::from(tier)],
                group: Group(0),
            };
            let told = prefix_index::Stored {
                hashes,
                parent: None,
                content: prefix_index::Content::Tokens((types::Tokens::Ids(tokens), BLOCK_SIZE)),
                lora: None,
                salt: None,
                tier: TIERS[usize::from(tier)],
                group: 0,
            };
            (worker, Event::Stored(stored), prefix_index::Event::Stored(told))
        }
        Step::Remove { worker, prompt, block, tier } => {
            let hash = engine_hash(prompt, block);
            let removed = Removed {
                hashes: vec![EngineHash(hash)],
                left: vec![],
                tier: Tier::ALL[usize::from(tier)],
                group: Group(0),
            };
            let told = prefix_index::Removed {
                hashes: vec![hash],
                left: vec![],
                tier: TIERS[usize::from(tier)],
                group: 0,
            };
            (worker, Event::Removed(removed), prefix_index::Event::Removed(told))
        }
        Step::Clear { worker } => (worker, Event::Cleared, prefix_index::Event::Cleared),
        Step::Select { .. } | Step::Free => return None,
    })
}

#[test]
fn the_component_chooses_as_the_core_does() {
    let mut host = Warmroute::open(&Warmroute::built_component().unwrap()).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(150));
    let host = std::cell::RefCell::new(&mut host);
    let policies = || {
        [
            (router::Policy::Standard, Rule::default()),
            (router::Policy::Prefix, Rule::Prefix(Default::default())),
            (router::Policy::Sticky, Rule::Sticky(Default::default())),
            (router::Policy::LeastLoad, Rule::LeastLoad(Default::default())),
        ]
    };
    runner
        .run(&steps(), |steps| {
            for (policy, rule) in policies() {
                run(&mut host.borrow_mut(), policy, rule, steps.clone());
            }
            Ok(())
        })
        .unwrap();
}
