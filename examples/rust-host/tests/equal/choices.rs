//! Choices, costs and loads.

use proptest::prelude::*;
use warmroute_host::{Warmroute, prefix_index, router, types};
use warmroute_routing::Tier;
use warmroute_routing::choose::{Load, Rule};

use crate::native::Native;
use crate::steps::{BLOCK_SIZE, Step, WORKERS, both, steps, tokens};

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
