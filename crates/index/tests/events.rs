//! How single events are taken. Blocks have one token, and are named by it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use support::{depth, depth_in, identity, index, read_all, removed, stored};
use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored};
use warmroute_index::{Applied, EventError, Index, WorkerId};
use warmroute_routing::Tier;
use warmroute_routing::hash::{LocalHash, Namespace, SequenceHash, sequence_hashes};

/// An index with one worker.
struct Single {
    index: Index,
    worker: WorkerId,
}

// === impl Single ===

impl Single {
    fn new() -> Self {
        let mut index = index(1, 2);
        let worker = index.add_worker(identity(0)).unwrap();
        Self { index, worker }
    }

    fn apply(&mut self, event: &Event) -> Applied {
        self.index.apply(self.worker, event).unwrap()
    }

    fn store(&mut self, stored: Stored) -> Applied {
        self.apply(&Event::Stored(stored))
    }

    fn depth(&mut self, prompt: &[u32]) -> usize {
        depth(&mut self.index, self.worker, &prompt_of(prompt))
    }

    fn depth_in(&mut self, prompt: &[u32], tier: Tier) -> usize {
        depth_in(&mut self.index, self.worker, &prompt_of(prompt), tier)
    }
}

fn prompt_of(tokens: &[u32]) -> Vec<SequenceHash> {
    sequence_hashes(tokens, 1, Namespace::default())
}

/// vLLM's proposal #48933: a count that has leaked, or that has missed a store, is put right by the next removal.
#[test]
fn an_engines_own_count_of_copies_is_believed_over_ours() {
    let mut index = index(1, 2);
    let worker = index.add_worker(identity(0)).unwrap();
    let prompt = sequence_hashes(&[1], 1, Namespace::default());
    let told = |left| {
        Event::Removed(Removed {
            hashes: vec![EngineHash(1)],
            left: vec![left],
            tier: Tier::Gpu,
            group: Group(0),
        })
    };
    for _ in 0..5 {
        index.apply(worker, &Event::Stored(stored(None, &[1]))).unwrap();
    }
    assert_eq!(index.apply(worker, &told(0)).unwrap().removed, 1);
    assert_eq!(depth(&mut index, worker, &prompt), 0);
    index.apply(worker, &Event::Stored(stored(None, &[1]))).unwrap();
    index.apply(worker, &told(1)).unwrap();
    assert_eq!(depth(&mut index, worker, &prompt), 1);
    index.apply(worker, &told(0)).unwrap();
    assert_eq!(depth(&mut index, worker, &prompt), 0);
    // A block that is not there does not come by being removed.
    assert_eq!(index.apply(worker, &told(1)).unwrap().unknown_removed, 1);
    let wrong = Removed { hashes: vec![EngineHash(1)], left: vec![0, 0], tier: Tier::Gpu, group: Group(0) };
    assert_eq!(index.apply(worker, &Event::Removed(wrong)), Err(EventError::Left { left: 2, hashes: 1 }));
}

#[test]
fn a_block_stored_twice_is_there_until_it_is_removed_twice() {
    let mut single = Single::new();
    single.store(stored(None, &[1, 2]));
    single.store(stored(Some(1), &[2]));
    single.apply(&removed(&[2]));
    assert_eq!(single.depth(&[1, 2]), 2);
    single.apply(&removed(&[2]));
    assert_eq!(single.depth(&[1, 2]), 1);
}

#[test]
fn a_hole_hides_what_is_below_until_it_closes() {
    let mut single = Single::new();
    single.store(stored(None, &[1, 2, 3]));
    single.apply(&removed(&[2]));
    assert_eq!((single.depth(&[1, 2, 3]), single.index.stats().unpublished), (1, 1));
    single.store(stored(Some(1), &[2]));
    assert_eq!((single.depth(&[1, 2, 3]), single.index.stats().unpublished), (3, 0));
}

#[test]
fn the_tier_is_the_slowest_on_the_way() {
    let mut single = Single::new();
    single.store(stored(None, &[1, 2, 3]));
    single.store(Stored { tier: Tier::Cpu, ..stored(Some(1), &[2]) });
    single.apply(&removed(&[2]));
    assert_eq!(single.depth_in(&[1, 2, 3], Tier::Gpu), 1);
    assert_eq!(single.depth_in(&[1, 2, 3], Tier::Cpu), 3);
    single.store(stored(Some(1), &[2]));
    assert_eq!(single.depth_in(&[1, 2, 3], Tier::Gpu), 3);
}

#[test]
fn removing_what_is_unknown_is_counted_and_the_rest_is_removed() {
    let mut single = Single::new();
    single.store(stored(None, &[1, 2]));
    let applied = single.apply(&removed(&[9, 2, 2, 1]));
    assert_eq!(applied, Applied { removed: 2, unknown_removed: 2, ..Applied::default() });
    let elsewhere = Removed { hashes: vec![EngineHash(1)], left: vec![], tier: Tier::Disk, group: Group(0) };
    assert_eq!(single.apply(&Event::Removed(elsewhere)).unknown_removed, 1);
    assert_eq!(single.index.stats().nodes, 0);
}

#[test]
fn groups_count_apart() {
    let mut single = Single::new();
    single.store(stored(None, &[1]));
    single.store(Stored { group: Group(7), ..stored(None, &[1]) });
    single.apply(&removed(&[1]));
    assert_eq!(single.depth(&[1]), 1);
    let other = Removed { hashes: vec![EngineHash(1)], left: vec![], tier: Tier::Gpu, group: Group(7) };
    single.apply(&Event::Removed(other));
    assert_eq!(single.depth(&[1]), 0);
}

#[test]
fn a_child_inherits_the_namespace_of_its_parent() {
    let mut single = Single::new();
    let salted = |stored| Stored { salt: Some("tenant".into()), ..stored };
    single.store(salted(stored(None, &[1])));
    single.store(stored(Some(1), &[2]));
    assert_eq!(single.depth(&[1, 2]), 0);
    let prompt = sequence_hashes(&[1, 2], 1, Namespace::new(None, Some("tenant")));
    assert_eq!(depth(&mut single.index, single.worker, &prompt), 2);
}

#[test]
fn the_order_of_media_does_not_matter() {
    let mut single = Single::new();
    let with = |media: &[u64]| Stored { media: vec![media.to_vec()], ..stored(None, &[1]) };
    single.store(with(&[8, 7]));
    let local = LocalHash::of_block_with_media(Namespace::default(), &[1], &mut [7, 8]);
    assert_eq!(depth(&mut single.index, single.worker, &[SequenceHash::root(local)]), 1);
    assert_eq!(single.depth(&[1]), 0, "equal tokens before another image are another block");

    let lost = |media: &[u64]| Stored { media: vec![media.to_vec()], ..stored(Some(9), &[2]) };
    single.store(lost(&[8, 7]));
    assert_eq!(single.store(lost(&[7, 8])).dropped_orphans, 0);
    single.apply(&removed(&[2]));
    assert_eq!(single.index.stats().orphans, 1);
}

#[test]
fn orphans_find_their_place_when_their_ancestor_comes() {
    let mut single = Single::new();
    assert_eq!(single.store(stored(Some(3), &[4, 5])).orphaned, 2);
    assert_eq!(single.store(stored(Some(1), &[2, 3])).orphaned, 2);
    assert_eq!(single.depth(&[1, 2, 3, 4, 5]), 0);
    let applied = single.store(stored(None, &[1]));
    assert_eq!(applied, Applied { stored: 1, attached: 4, ..Applied::default() });
    assert_eq!(single.depth(&[1, 2, 3, 4, 5]), 5);
}

#[test]
fn an_orphan_keeps_its_copies_and_can_be_removed() {
    let mut single = Single::new();
    single.store(stored(Some(1), &[2]));
    single.store(stored(Some(1), &[2]));
    assert_eq!(single.apply(&removed(&[2])).removed, 1);
    single.store(stored(None, &[1]));
    assert_eq!(single.depth(&[1, 2]), 2);
    single.apply(&removed(&[2]));
    assert_eq!(single.depth(&[1, 2]), 1);
}

#[test]
fn the_oldest_orphans_are_given_up() {
    let mut single = Single::new();
    for token in 10..20 {
        single.store(stored(Some(1), &[token]));
    }
    assert_eq!(single.index.stats().orphans, 8);
    single.store(stored(None, &[1]));
    assert_eq!((single.depth(&[1, 11]), single.depth(&[1, 12])), (1, 2));
}

#[test]
fn orphans_that_wait_for_each_other_or_themselves_are_harmless() {
    let mut single = Single::new();
    single.store(stored(Some(1), &[1]));
    single.store(stored(Some(3), &[2]));
    single.store(stored(Some(2), &[3]));
    let applied = single.store(stored(None, &[1]));
    assert_eq!(applied, Applied { stored: 1, dropped_orphans: 1, ..Applied::default() });
    let applied = single.store(stored(None, &[2]));
    assert_eq!((applied.attached, single.index.stats().orphans), (1, 0));
    assert_eq!(single.depth(&[2, 3]), 2);
}

#[test]
fn a_known_block_after_an_unknown_one_has_a_copy_more() {
    let mut single = Single::new();
    single.store(stored(None, &[1, 2]));
    single.apply(&removed(&[1]));
    // The engine has stored block 1 again, but the event was lost.
    let applied = single.store(stored(Some(1), &[2, 3]));
    assert_eq!(applied, Applied { stored: 2, ..Applied::default() });
    single.store(stored(None, &[1]));
    single.apply(&removed(&[2]));
    assert_eq!(single.depth(&[1, 2, 3]), 3);
}

#[test]
fn a_name_given_to_another_block_leaves_the_old_one() {
    let mut single = Single::new();
    single.store(stored(None, &[1, 2]));
    single.store(stored(None, &[1, 2]));
    let renamed = Stored { tokens: vec![7], ..stored(Some(1), &[2]) };
    assert_eq!(single.store(renamed).renamed, 1);
    assert_eq!((single.depth(&[1, 2]), single.depth(&[1, 7])), (1, 2));
    single.apply(&removed(&[2]));
    assert_eq!(single.depth(&[1, 7]), 1);
}

#[test]
fn a_name_can_move_to_the_block_above_its_own() {
    let mut single = Single::new();
    single.store(stored(None, &[1, 2]));
    single.apply(&removed(&[1]));
    // Block 1 is there only because block 2 is below it, and block 2 loses its only name.
    single.store(Stored { tokens: vec![1], ..stored(None, &[2]) });
    assert_eq!((single.depth(&[1, 2]), single.index.stats().nodes), (1, 1));
}

#[test]
fn a_chain_may_name_two_blocks_alike() {
    let mut single = Single::new();
    single.store(Stored { hashes: vec![EngineHash(5); 3], ..stored(None, &[1, 2, 3]) });
    assert_eq!(single.index.stats().names, 1);
    assert_eq!(read_all(&mut single.index).len(), 0, "only the third block is still named");
    single.store(stored(None, &[1, 2]));
    assert_eq!(single.depth(&[1, 2, 3]), 3);
}

#[test]
fn a_store_without_tokens_counts_what_is_known() {
    let mut single = Single::new();
    single.store(stored(None, &[1, 2]));
    let offloaded = Stored { tokens: vec![], block_size: 0, tier: Tier::Cpu, ..stored(None, &[2, 9]) };
    assert_eq!(single.store(offloaded), Applied { stored: 1, skipped: 1, ..Applied::default() });
    single.apply(&removed(&[2]));
    assert_eq!((single.depth_in(&[1, 2], Tier::Gpu), single.depth_in(&[1, 2], Tier::Cpu)), (1, 2));
}

#[test]
fn a_block_may_have_any_number_of_names() {
    let mut single = Single::new();
    let named = |name: u32| Stored { hashes: vec![EngineHash(u64::from(name))], ..stored(None, &[1]) };
    assert_eq!((0..70_000).map(|name| single.store(named(name)).stored).sum::<u32>(), 70_000);
    assert_eq!(single.store(named(0)).stored, 1, "a name that is known is counted");
    for name in 0..70_000 {
        single.apply(&removed(&[name]));
    }
    assert_eq!(single.depth(&[1]), 1);
    single.apply(&removed(&[0]));
    assert_eq!(single.index.stats().nodes, 0);
}

#[test]
fn an_event_that_contradicts_itself_changes_nothing() {
    let mut single = Single::new();
    single.store(stored(None, &[1]));
    let (stats, version) = (single.index.stats(), single.index.version());
    let good = || stored(Some(1), &[2, 3]);
    let cases = [
        (Stored { block_size: 16, ..good() }, EventError::BlockSize { expected: 1, actual: 16 }),
        (Stored { block_size: 0, ..good() }, EventError::BlockSize { expected: 1, actual: 0 }),
        (
            Stored { tokens: vec![2], ..good() },
            EventError::Misaligned { tokens: 1, hashes: 2, block_size: 1 },
        ),
        (Stored { hashes: vec![], ..good() }, EventError::Misaligned { tokens: 2, hashes: 0, block_size: 1 }),
        (Stored { media: vec![vec![]], ..good() }, EventError::Media { media: 1, hashes: 2 }),
    ];
    for (event, error) in cases {
        assert_eq!(single.index.apply(single.worker, &Event::Stored(event)), Err(error));
    }
    single.store(stored(None, &[]));
    single.apply(&removed(&[]));
    assert_eq!((single.index.stats(), single.index.version()), (stats, version));
}

#[test]
fn the_extremes_are_numbers_like_any_other() {
    let mut single = Single::new();
    let extreme = Stored {
        hashes: vec![EngineHash(u64::MAX), EngineHash(0)],
        tokens: vec![u32::MAX, 0],
        media: vec![vec![u64::MAX; 20], vec![]],
        group: Group(u32::MAX),
        ..stored(None, &[1, 2])
    };
    assert_eq!(single.store(extreme).stored, 2);
    let lost = Stored { hashes: vec![EngineHash(3)], group: Group(u32::MAX), ..stored(Some(u64::MAX), &[3]) };
    assert_eq!(single.store(lost).stored, 1);
    let orphan = Stored { hashes: vec![EngineHash(u64::MAX)], ..stored(Some(u64::MAX), &[3]) };
    assert_eq!(single.store(orphan).orphaned, 1);
}

#[test]
fn readers_are_told_once_a_block_of_another_namespace_is_stored() {
    let mut single = Single::new();
    single.store(stored(None, &[1, 2]));
    assert!(!single.index.is_namespaced());
    let version = single.index.workers_version();
    single.store(Stored { salt: Some("tenant".into()), ..stored(None, &[1]) });
    assert!(single.index.is_namespaced());
    assert!(single.index.workers_version() > version);
}
