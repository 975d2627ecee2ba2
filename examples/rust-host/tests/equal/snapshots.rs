//! An index that was restored knows what the other did, and what the core does that was never saved.

use std::cell::RefCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use warmroute_host::{Warmroute, prefix_index, types};
use warmroute_routing::choose::Rule;
use wasmtime::component::ResourceAny;

use crate::native::Native;
use crate::steps::{BLOCK_SIZE, PROMPTS, Step, WORKERS, both, steps, tokens};

/// Blocks of each tier at each worker that holds some.
type Matches = Vec<(u64, [u32; 4])>;

/// The component's side.
struct Hosted<'a>(&'a mut Warmroute);

// === impl Hosted ===

impl Hosted<'_> {
    fn open(&mut self) -> ResourceAny {
        let Warmroute { store, world } = &mut *self.0;
        let calls = world.warmroute_routing_prefix_index().index();
        let options = prefix_index::Options { block_size: BLOCK_SIZE, max_orphans: 100 };
        let index = calls.call_open(&mut *store, options).unwrap().unwrap();
        for id in 1..=WORKERS {
            assert!(calls.call_add_worker(&mut *store, index, types::Worker { id, rank: 0 }).unwrap());
        }
        index
    }

    fn apply(&mut self, index: ResourceAny, worker: u64, event: prefix_index::Event) {
        let Warmroute { store, world } = &mut *self.0;
        let calls = world.warmroute_routing_prefix_index().index();
        let worker = types::Worker { id: worker, rank: 0 };
        assert_eq!(calls.call_apply(&mut *store, index, worker, &[event], 0).unwrap().failed, []);
    }

    /// What an index knows: who holds how much of each prompt, and its figures.
    fn knows(&mut self, index: ResourceAny) -> (Vec<Matches>, prefix_index::Stats) {
        let Warmroute { store, world } = &mut *self.0;
        let calls = world.warmroute_routing_prefix_index().index();
        let mut matches = |tokens| {
            let plain = types::Namespace { lora: None, salt: None };
            let prompt = types::Prompt::Tokens((types::Tokens::Ids(tokens), plain));
            let found = calls.call_matches(&mut *store, index, &prompt).unwrap().unwrap();
            let depths = |depths: types::Depths| [depths.gpu, depths.cpu, depths.disk, depths.external];
            found.into_iter().map(|found| (found.worker.id, depths(found.depths))).collect()
        };
        let known = prompts().map(&mut matches).collect();
        (known, calls.call_stats(&mut *store, index).unwrap())
    }

    /// A copy of an index by way of its snapshot, as a list or as text.
    fn copy(&mut self, index: ResourceAny, as_text: bool) -> ResourceAny {
        let Warmroute { store, world } = &mut *self.0;
        let calls = world.warmroute_routing_prefix_index().index();
        let bytes = calls.call_snapshot(&mut *store, index).unwrap().unwrap();
        let text = calls.call_snapshot_base64(&mut *store, index).unwrap().unwrap();
        assert_eq!(STANDARD.decode(&text).unwrap(), bytes);
        let saved =
            if as_text { prefix_index::Saved::Base64(text) } else { prefix_index::Saved::Bytes(bytes) };
        calls.call_restore(&mut *store, &saved).unwrap().unwrap()
    }

    fn drop(&mut self, index: ResourceAny) {
        index.resource_drop(&mut self.0.store).unwrap();
    }
}

fn prompts() -> impl Iterator<Item = Vec<u32>> {
    (0..PROMPTS).map(|prompt| tokens(prompt, 20))
}

fn run(hosted: &mut Hosted<'_>, before: &[Step], after: &[Step], as_text: bool) {
    let mut native = Native::new(Rule::default());
    let index = hosted.open();
    for (worker, native_event, event) in before.iter().filter_map(both) {
        native.apply(worker, &native_event);
        hosted.apply(index, worker, event);
    }
    let copy = hosted.copy(index, as_text);
    let all_know_the_same = |hosted: &mut Hosted<'_>, native: &mut Native| {
        let core: Vec<_> = prompts().map(|tokens| native.matches(&tokens)).collect();
        let (matches, stats) = hosted.knows(copy);
        assert_eq!(matches, core);
        assert_eq!((matches, stats), hosted.knows(index));
    };
    all_know_the_same(hosted, &mut native);
    for (worker, native_event, event) in after.iter().filter_map(both) {
        native.apply(worker, &native_event);
        hosted.apply(index, worker, event.clone());
        hosted.apply(copy, worker, event);
    }
    all_know_the_same(hosted, &mut native);
    hosted.drop(index);
    hosted.drop(copy);
}

#[test]
fn a_restored_index_answers_every_prompt_as_the_other_and_the_core_do() {
    let mut host = Warmroute::open(&Warmroute::built_component().unwrap()).unwrap();
    let hosted = RefCell::new(Hosted(&mut host));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(300));
    runner
        .run(&(steps(), steps(), any::<bool>()), |(before, after, as_text)| {
            run(&mut hosted.borrow_mut(), &before, &after, as_text);
            Ok(())
        })
        .unwrap();
}
