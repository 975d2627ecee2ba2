//! Memory is bounded by what is held, however much has come and gone.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use support::{identity, index, removed, stored};
use warmroute_index::event::Event;

/// Stores of ten blocks under a shared first block, with an orphan each; the oldest of a window is evicted, from the
/// root or from the leaf.
#[test]
fn memory_stays_flat_while_blocks_come_and_go() {
    let mut index = index(1, 4);
    let worker = index.add_worker(identity(0)).unwrap();
    index.apply(worker, &Event::Stored(stored(None, &[0]))).unwrap();
    let blocks_of = |chain: u32| (1..=10).map(|n| chain * 100 + n).collect::<Vec<_>>();
    let mut most = None;
    for chain in 1..3_000 {
        index.apply(worker, &Event::Stored(stored(Some(0), &blocks_of(chain)))).unwrap();
        let lost = u64::from(chain) + 1_000_000_000;
        index.apply(worker, &Event::Stored(stored(Some(lost), &[chain * 100 + 50]))).unwrap();
        if let Some(old) = chain.checked_sub(50).filter(|old| *old > 0) {
            let mut blocks = blocks_of(old);
            if old % 2 == 0 {
                blocks.reverse();
            }
            let applied = index.apply(worker, &removed(&blocks)).unwrap();
            assert_eq!(applied.removed, 10);
        }
        let stats = index.stats();
        if chain == 100 {
            most = Some(stats);
        }
        if let Some(most) = most {
            assert_eq!(
                (stats.nodes, stats.node_capacity, stats.names, stats.orphans),
                (most.nodes, most.node_capacity, most.names, most.orphans)
            );
            assert!(stats.change_log <= 2 * 16 + 64);
        }
    }
}

#[test]
fn memory_stays_flat_while_workers_restart() {
    let mut index = index(1, 4);
    let worker = index.add_worker(identity(0)).unwrap();
    let blocks: Vec<_> = (1..=100).collect();
    for round in 0..1_000 {
        index.apply(worker, &Event::Stored(stored(None, &blocks))).unwrap();
        index.apply(worker, &Event::Cleared).unwrap();
        // A round leaves a hundred names behind, and as many are purged.
        index.purge(60);
        index.purge(60);
        let stats = index.stats();
        assert!(stats.retired_slots <= 1 && stats.node_capacity <= 200, "round {round}: {stats:?}");
    }
    while index.purge(7) > 0 {}
    let stats = index.stats();
    assert_eq!((stats.nodes, stats.blocks, stats.retired_slots), (0, 0, 0));
}
