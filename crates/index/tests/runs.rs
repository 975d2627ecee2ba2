//! Where the blocks of a run stand: together in one page, or spread where the run is crowded.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

#[path = "residency/reader.rs"]
mod reader;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;
use reader::Follower;
use support::{bits, depth, identity, index, removed, stored};
use warmroute_index::event::Event;
use warmroute_routing::hash::{Namespace, SequenceHash, sequence_hashes};
use warmroute_routing::page::{Generation, Page, RUN_BLOCKS};

/// The first blocks that all prompts have.
const SHARED: [u32; 20] = [7; 20];

/// A prompt whose branch has a number: it parts from the others inside the second run.
fn prompt(branch: u32) -> Vec<u32> {
    SHARED.into_iter().chain(1000 + 40 * branch..1000 + 40 * branch + 30).collect()
}

fn hashes(branch: u32) -> Vec<SequenceHash> {
    sequence_hashes(&prompt(branch), 1, Namespace::default())
}

/// The store of a prompt's blocks, under names that say branch and position.
fn store(branch: u32) -> Event {
    let blocks = prompt(branch);
    let mut event = stored(None, &blocks);
    for (i, hash) in event.hashes.iter_mut().enumerate().take(SHARED.len()) {
        hash.0 = i as u64;
    }
    Event::Stored(event)
}

/// The removal of what only this branch has.
fn remove(branch: u32) -> Event {
    removed(&prompt(branch)[SHARED.len()..])
}

#[test]
fn a_run_stands_in_the_page_of_its_first_block() {
    let mut index = index(1, 8);
    let worker = index.add_worker(identity(0)).unwrap();
    index.apply(worker, &store(0)).unwrap();
    for (block, hash) in hashes(0).iter().enumerate() {
        let head = hashes(0)[block - block % RUN_BLOCKS as usize];
        let bytes = index.page(bits(8).page_of(head));
        assert!(
            Page::parse(&bytes).unwrap().find(*hash).is_some_and(|record| !record.crowded),
            "block {block}"
        );
    }
    assert_eq!(index.changed_since(0).count(), 4);
}

#[test]
fn a_crowded_run_is_spread_and_comes_together_again_and_a_follower_sees_it_all() {
    let mut index = index(1, 8);
    let worker = index.add_worker(identity(0)).unwrap();
    let mut follower = Follower::default();
    let head = hashes(0)[RUN_BLOCKS as usize];
    let mut held = BTreeSet::new();
    let mut was_crowded = false;
    // Up to sixty branches, then down to one: the first twelve blocks of each are of the crowded run.
    for step in 0..119_u32 {
        if step < 60 {
            index.apply(worker, &store(step)).unwrap();
            held.insert(step);
        } else {
            index.apply(worker, &remove(step - 60)).unwrap();
            held.remove(&(step - 60));
        }
        while !follower.follow(&mut index, 3) {}
        follower.check(&mut index);
        let bytes = index.page(bits(8).page_of(head));
        let page = Page::parse(&bytes).unwrap();
        let is_crowded = page.find(head).unwrap().crowded;
        // 4 shared blocks and 12 of each branch: between 32 and 64 it stays what it was.
        let published = 4 + 12 * held.len();
        assert!(
            is_crowded == (published > 64) || (32..=64).contains(&published) && is_crowded == was_crowded
        );
        was_crowded = is_crowded;
        assert!(page.len() <= 64 + 20, "{} records", page.len());
        for branch in [0, 1, step.min(59), 58, 59] {
            let expected = if held.contains(&branch) { 50 } else { SHARED.len() };
            assert_eq!(depth(&mut index, worker, &hashes(branch)), expected, "branch {branch} at {step}");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Store,
    /// The branch's last blocks, from a place of the prompt on.
    RemoveFrom(usize),
    /// One block, wherever it is.
    RemoveOne(usize),
    Reset,
    Purge,
    Generation(u8),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => Just(Op::Store),
        3 => (0..50usize).prop_map(Op::RemoveFrom),
        3 => (0..50usize).prop_map(Op::RemoveOne),
        1 => Just(Op::Reset),
        1 => Just(Op::Purge),
        1 => (3..7u8).prop_map(Op::Generation),
    ]
}

/// What a worker calls the block in a place of a branch.
fn name(branch: u32, place: usize) -> u32 {
    if place < SHARED.len() { place as u32 } else { prompt(branch)[place] }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Workers come to hold the branches, and lose parts of them, while the run is crowded and comes together again.
    #[test]
    fn depths_are_exact_in_a_crowded_run(
        ops in prop::collection::vec((0..3u32, 0..16u32, any_op()), 1..60),
    ) {
        let mut index = index(1, 5);
        let workers = [0, 1, 2].map(|number| index.add_worker(identity(number)).unwrap());
        let mut copies = [0, 1, 2].map(|_| BTreeMap::<u32, u32>::new());
        let mut follower = Follower::default();
        for (worker, branch, op) in ops {
            let (id, copies_of) = (workers[worker as usize], &mut copies[worker as usize]);
            let mut remove = |places: Range<usize>| {
                let names: Vec<_> = places.map(|place| name(branch, place)).collect();
                for name in &names {
                    copies_of.entry(*name).and_modify(|count| *count = count.saturating_sub(1));
                }
                index.apply(id, &removed(&names)).unwrap();
            };
            match op {
                Op::Store => {
                    index.apply(id, &store(branch)).unwrap();
                    (0..50).for_each(|place| *copies_of.entry(name(branch, place)).or_default() += 1);
                }
                Op::RemoveFrom(place) => remove(place..50),
                Op::RemoveOne(place) => remove(place..place + 1),
                Op::Reset => {
                    index.reset_worker(id);
                    copies_of.clear();
                }
                Op::Purge => _ = index.purge(40),
                Op::Generation(page_bits) => {
                    let generation = Generation(index.generation().0 + 1);
                    index.begin_generation(generation, bits(page_bits));
                }
            }
            while !follower.follow(&mut index, 3) {}
            follower.check(&mut index);
            for (id, copies) in workers.iter().zip(&copies) {
                for branch in [branch, 0, 7] {
                    let held = |place: &usize| copies.get(&name(branch, *place)).is_some_and(|count| *count > 0);
                    let expected = (0..50).take_while(held).count();
                    prop_assert_eq!(depth(&mut index, *id, &hashes(branch)), expected);
                }
            }
        }
    }
}
