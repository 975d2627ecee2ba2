//! Whatever engines tell, the pages tell exactly what a plain model of residency tells, and a reader who follows them
//! page by page misses nothing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod model;
mod ops;
mod reader;
#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored, StoredLocals};
use warmroute_index::{Applied, Index, Options, WorkerId};
use warmroute_routing::Tier;
use warmroute_routing::page::Generation;

use model::{Name, Prefix, Worker};
use ops::{BLOCK_SIZE, Op, Store};
use reader::{Follower, History};
use support::{Records, bits, identity};

const MAX_ORPHANS: usize = 6;

/// An index, and what it should know.
struct World {
    index: Index,
    workers: BTreeMap<u32, (WorkerId, Worker)>,
    /// Every prefix that ever was.
    prefixes: BTreeSet<Prefix>,
    history: History,
    follower: Follower,
    slow_follower: Follower,
}

// === impl World ===

impl World {
    fn new() -> Self {
        let options = Options { block_size: BLOCK_SIZE, page_bits: bits(2), max_orphans: MAX_ORPHANS };
        Self {
            index: Index::new(options, Generation(1)),
            workers: BTreeMap::new(),
            prefixes: BTreeSet::new(),
            history: History::default(),
            follower: Follower::default(),
            slow_follower: Follower::default(),
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Store(worker, store) => self.store(worker, &store),
            Op::Twice(worker, store) => {
                self.store(worker, &store);
                self.store(worker, &store);
            }
            Op::Lost(worker, store, at, later) => {
                let (head, tail) = store.split(at);
                self.store(worker, &tail);
                if later {
                    self.store(worker, &head);
                }
            }
            Op::Known(worker, group, tier, names) => self.store_known(worker, group, tier, &names),
            Op::Remove(worker, tier, group, names, told) => {
                let names: Vec<_> =
                    names.iter().map(|(name, left)| ((group, *name), told.then_some(*left))).collect();
                self.remove(worker, tier, &names);
            }
            Op::Evict(worker, picks, left) => self.evict(worker, &picks, left),
            Op::Cleared(worker) => {
                if let Some((id, model)) = self.workers.get_mut(&worker) {
                    let cleared = (model.names.len() + model.orphans.len()) as u32;
                    let applied = self.index.apply(*id, &Event::Cleared).unwrap();
                    assert_eq!(applied, Applied { cleared, ..Applied::default() });
                    *model = Worker::default();
                }
            }
            Op::Restore(worker) => {
                if let Some((id, _)) = self.workers.get(&worker) {
                    let saved = self.index.save_worker(*id).unwrap();
                    self.index.restore_worker(*id, &saved).unwrap();
                    assert_eq!(self.index.save_worker(*id).unwrap().len(), saved.len());
                }
            }
            Op::Reset(worker) => {
                if let Some((id, model)) = self.workers.get_mut(&worker) {
                    self.index.reset_worker(*id);
                    *model = Worker::default();
                }
            }
            Op::Leave(worker) => {
                if let Some((id, _)) = self.workers.remove(&worker) {
                    self.index.remove_worker(id);
                }
            }
            Op::Join(worker) => {
                self.join(worker);
            }
            Op::Purge(max) => {
                let purged = self.index.purge(max);
                assert!(purged <= max && (purged == max || self.index.stats().retired_slots == 0));
            }
            Op::Generation(page_bits) => {
                let generation = Generation(self.index.generation().0 + 1);
                self.index.begin_generation(generation, bits(page_bits));
                assert_eq!(self.index.stats().retired_slots, 0);
                let slots: Vec<_> =
                    self.index.workers().map(|(_, _, slot)| usize::from(slot.number())).collect();
                assert_eq!(slots, (0..self.workers.len()).collect::<Vec<_>>());
            }
            Op::Touch => {
                let before = self.index.version();
                assert_eq!((self.index.touch(), self.index.workers_version()), (before + 1, before + 1));
            }
        }
    }

    /// The worker, added if it is not there.
    fn join(&mut self, worker: u32) -> &mut (WorkerId, Worker) {
        let add = || (self.index.add_worker(identity(worker)).unwrap(), Worker::default());
        self.workers.entry(worker).or_insert_with(add)
    }

    fn store(&mut self, worker: u32, store: &Store) {
        if store.blocks.is_empty() {
            return;
        }
        let (id, model) = self.join(worker);
        let id = *id;
        model.store(store, MAX_ORPHANS);
        let prefixes = model.prefixes();
        self.prefixes.extend(prefixes);
        let applied = if store.is_hashed() {
            self.index.apply_locals(id, &locals_event(store)).unwrap()
        } else {
            self.index.apply(id, &Event::Stored(stored_event(store))).unwrap()
        };
        assert_eq!((applied.stored + applied.orphaned) as usize, store.blocks.len());
    }

    fn store_known(&mut self, worker: u32, group: u32, tier: Tier, names: &[u64]) {
        let (id, model) = self.join(worker);
        let id = *id;
        names.iter().for_each(|name| model.store_known((group, *name), tier));
        let hashes = names.iter().copied().map(EngineHash).collect();
        let (tokens, media) = (vec![], vec![]);
        let group = Group(group);
        let event = Stored {
            hashes,
            parent: None,
            tokens,
            block_size: 0,
            media,
            lora: None,
            salt: None,
            tier,
            group,
        };
        let applied = self.index.apply(id, &Event::Stored(event)).unwrap();
        assert_eq!((applied.stored + applied.orphaned + applied.skipped) as usize, names.len());
    }

    fn evict(&mut self, worker: u32, picks: &[prop::sample::Index], left: Option<u32>) {
        for pick in picks {
            let Some((_, model)) = self.workers.get(&worker) else { return };
            let mut known: Vec<_> = model
                .names
                .iter()
                .map(|(name, (_, copies))| (*name, *copies.keys().next().unwrap()))
                .collect();
            known.sort_unstable();
            if known.is_empty() {
                return;
            }
            let (name, tier) = known[pick.index(known.len())];
            self.remove(worker, tier, &[(name, left)]);
        }
    }

    fn remove(&mut self, worker: u32, tier: Tier, names: &[(Name, Option<u32>)]) {
        let Some((id, model)) = self.workers.get_mut(&worker) else { return };
        let removed = names.iter().filter(|(name, left)| model.remove(*name, tier, *left)).count() as u32;
        let group = Group(names.first().map_or(0, |((group, _), _)| *group));
        let hashes = names.iter().map(|((_, hash), _)| EngineHash(*hash)).collect();
        let left = names.iter().filter_map(|(_, left)| *left).collect();
        let event = Event::Removed(Removed { hashes, left, tier, group });
        let unknown_removed = names.len() as u32 - removed;
        let applied = self.index.apply(*id, &event).unwrap();
        assert_eq!(applied, Applied { removed, unknown_removed, ..Applied::default() });
    }

    fn check(&mut self) {
        let records = support::read_all(&mut self.index);
        self.check_against_the_model(&records);
        self.check_closure(&records);
        self.history.check(&mut self.index);
        self.follower.follow(&mut self.index, usize::MAX);
        self.follower.check(&mut self.index);
        if self.slow_follower.follow(&mut self.index, 2) {
            self.slow_follower.check(&mut self.index);
        }
    }

    fn check_against_the_model(&self, records: &Records) {
        let mut expected = Records::new();
        let (mut unpublished, mut names, mut orphans) = (0, 0, 0);
        for (id, model) in self.workers.values() {
            let slot = support::slot_of(&self.index, *id);
            let (published, missing) = model.published();
            for (hash, tier) in published {
                expected.entry(hash).or_default().insert(slot, tier);
            }
            unpublished += missing;
            names += model.names.len();
            orphans += model.orphans.len();
        }
        assert_eq!(*records, expected);
        let stats = self.index.stats();
        let holdings: usize = records.values().map(BTreeMap::len).sum();
        assert_eq!(
            (stats.holdings, stats.unpublished, stats.names, stats.orphans, stats.workers),
            (holdings as u64, unpublished as u64, names as u64, orphans as u64, self.workers.len())
        );
        if stats.retired_slots == 0 {
            assert_eq!(stats.blocks as usize, records.len());
        }
    }

    /// Without the model: whoever holds a block holds the one before it, in no slower tier.
    fn check_closure(&self, records: &Records) {
        for prefix in &self.prefixes {
            let (Some(holders), [before @ .., _]) = (records.get(&prefix.hash()), prefix.locals.as_slice())
            else {
                continue;
            };
            if before.is_empty() {
                continue;
            }
            let parent = Prefix { namespace: prefix.namespace, locals: before.to_vec() };
            let above = records.get(&parent.hash()).unwrap();
            assert!(holders.iter().all(|(slot, tier)| above.get(slot).is_some_and(|above| above <= tier)));
        }
    }

    /// When everybody has left, nothing is left.
    fn end(mut self) {
        for worker in 0..4 {
            self.step(Op::Leave(worker));
        }
        self.check();
        while self.index.purge(3) > 0 {}
        self.check();
        let stats = self.index.stats();
        assert_eq!((stats.nodes, stats.blocks, stats.retired_slots), (0, 0, 0));
        while !self.slow_follower.follow(&mut self.index, 1) {}
        self.slow_follower.check(&mut self.index);
        assert!(self.follower.is_empty(&self.index), "purged pages are told too");
    }
}

fn stored_event(store: &Store) -> Stored {
    Stored {
        hashes: store.blocks.iter().map(|(name, _)| EngineHash(*name)).collect(),
        parent: store.parent.map(EngineHash),
        tokens: store.blocks.iter().flat_map(|(_, block)| block.tokens).collect(),
        block_size: BLOCK_SIZE,
        media: store.blocks.iter().map(|(_, block)| block.media.clone()).collect(),
        lora: store.lora.map(str::to_owned),
        salt: store.salt.map(str::to_owned),
        tier: store.tier,
        group: Group(store.group),
    }
}

fn locals_event(store: &Store) -> StoredLocals {
    let namespace = store.namespace();
    StoredLocals {
        hashes: store.blocks.iter().map(|(name, _)| EngineHash(*name)).collect(),
        parent: store.parent.map(EngineHash),
        locals: store.blocks.iter().map(|(_, block)| block.local(namespace, namespace)).collect(),
        lora: store.lora.map(str::to_owned),
        salt: store.salt.map(str::to_owned),
        tier: store.tier,
        group: Group(store.group),
    }
}

/// Runs the steps and checks everything after each.
fn run(ops: Vec<Op>) {
    let mut world = World::new();
    for op in ops {
        world.step(op);
        world.check();
    }
    world.end();
}

/// Steps of a long history. Together the long histories have a hundred thousand.
const LONG: usize = 500;

fn long_histories() -> ProptestConfig {
    ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_tell_exactly_what_workers_hold(ops in prop::collection::vec(ops::any_op(), 1..80)) {
        run(ops);
    }
}

// Two tests, so that two cores can share them.
proptest! {
    #![proptest_config(long_histories())]

    #[test]
    fn pages_tell_exactly_what_workers_hold_over_a_long_time(ops in prop::collection::vec(ops::any_op(), LONG)) {
        run(ops);
    }

    #[test]
    fn pages_tell_exactly_what_workers_hold_over_another_long_time(ops in prop::collection::vec(ops::any_op(), LONG)) {
        run(ops);
    }
}
