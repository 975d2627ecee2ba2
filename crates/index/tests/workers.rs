//! Workers come, restart and go; generations change.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use support::{bits, depth, identity, index, read_all, slot_of, stored};
use warmroute_index::event::Event;
use warmroute_index::{EventError, Index, IndexError, WorkerId};
use warmroute_routing::hash::{Namespace, SequenceHash, sequence_hashes};
use warmroute_routing::page::{Generation, Page, Slot};

fn prompt() -> Vec<SequenceHash> {
    sequence_hashes(&[1, 2, 3], 1, Namespace::default())
}

fn store(index: &mut Index, worker: WorkerId) {
    index.apply(worker, &Event::Stored(stored(None, &[1, 2, 3]))).unwrap();
}

/// Uses up every slot by restarting the worker.
fn exhaust(index: &mut Index, worker: WorkerId) {
    while slot_of(index, worker).number() < Slot::MAX {
        index.reset_worker(worker);
    }
}

#[test]
fn a_reset_worker_has_nothing_and_another_slot() {
    let mut index = index(1, 2);
    let worker = index.add_worker(identity(0)).unwrap();
    store(&mut index, worker);
    let slot = slot_of(&index, worker);
    index.reset_worker(worker);
    assert_ne!(slot_of(&index, worker), slot);
    assert_eq!(depth(&mut index, worker, &prompt()), 0);
    store(&mut index, worker);
    assert_eq!(depth(&mut index, worker, &prompt()), 3);
    assert_eq!(index.purge(100), 3, "what the old incarnation held is another's");
    assert_eq!(depth(&mut index, worker, &prompt()), 3);
}

#[test]
fn a_page_written_anew_leaves_out_dead_slots() {
    let mut index = index(1, 0);
    let worker = index.add_worker(identity(0)).unwrap();
    store(&mut index, worker);
    index.remove_worker(worker);
    assert!(Page::parse(&index.page(0)).unwrap().is_empty());
    assert_eq!(index.stats().blocks, 3);
    let position = index.version();
    assert_eq!(index.purge(100), 3);
    assert_eq!(index.changed_since(position).count(), 1, "readers learn that there is less to keep");
    assert_eq!((index.stats().blocks, index.stats().nodes), (0, 0));
}

#[test]
fn purging_changes_no_page_that_was_written_since() {
    let mut index = index(1, 0);
    let worker = index.add_worker(identity(0)).unwrap();
    store(&mut index, worker);
    index.reset_worker(worker);
    store(&mut index, worker);
    let position = index.version();
    index.purge(100);
    assert_eq!(index.changed_since(position).count(), 0);
}

#[test]
fn a_worker_is_there_once() {
    let mut index = index(1, 2);
    let worker = index.add_worker(identity(0)).unwrap();
    assert_eq!(index.add_worker(identity(0)), Err(IndexError::WorkerExists(worker)));
    index.remove_worker(worker);
    let again = index.add_worker(identity(0)).unwrap();
    assert_ne!(again, worker);
    assert_eq!(index.apply(worker, &Event::Cleared), Err(EventError::UnknownWorker));
}

#[test]
fn a_worker_that_is_gone_is_left_alone() {
    let mut index = index(1, 2);
    let worker = index.add_worker(identity(0)).unwrap();
    index.remove_worker(worker);
    let version = index.version();
    index.remove_worker(worker);
    index.reset_worker(worker);
    assert_eq!(index.version(), version);
}

#[test]
fn the_worker_table_has_its_own_version() {
    let mut index = index(1, 2);
    assert_eq!((index.version(), index.workers_version()), (1, 1));
    let worker = index.add_worker(identity(0)).unwrap();
    let version = index.workers_version();
    assert_eq!(version, index.version());
    store(&mut index, worker);
    assert_eq!(index.workers_version(), version);
    assert!(index.version() > version);
}

#[test]
fn without_slots_no_worker_is_added_until_the_next_generation() {
    let mut index = index(1, 2);
    let first = index.add_worker(identity(0)).unwrap();
    exhaust(&mut index, first);
    assert!(!index.needs_generation());
    assert_eq!(index.add_worker(identity(1)), Err(IndexError::SlotsExhausted));
    index.begin_generation(Generation(2), bits(2));
    index.add_worker(identity(1)).unwrap();
}

#[test]
fn a_worker_without_a_slot_is_not_listed_but_its_events_count() {
    let mut index = index(1, 2);
    let worker = index.add_worker(identity(0)).unwrap();
    exhaust(&mut index, worker);
    store(&mut index, worker);
    index.apply(worker, &Event::Cleared).unwrap();
    assert!(index.needs_generation());
    assert_eq!((index.workers().count(), index.stats().unlisted_workers), (0, 1));
    store(&mut index, worker);
    assert!(read_all(&mut index).is_empty());
    index.reset_worker(worker);
    let position = index.version();
    assert_eq!(index.purge(100), 6);
    // The incarnation without a slot was in no page; those of the one before have been written since.
    assert_eq!(index.changed_since(position).count(), 0);
    store(&mut index, worker);

    index.begin_generation(Generation(2), bits(3));
    assert!(!index.needs_generation());
    assert_eq!(slot_of(&index, worker).number(), 0);
    assert_eq!(depth(&mut index, worker, &prompt()), 3);
}

#[test]
fn a_generation_keeps_the_content_and_changes_every_page_that_has_some() {
    let mut index = index(1, 2);
    let gone = index.add_worker(identity(0)).unwrap();
    let worker = index.add_worker(identity(1)).unwrap();
    store(&mut index, worker);
    index.remove_worker(gone);
    let position = index.version();
    index.begin_generation(Generation(9), bits(6));
    assert_eq!((index.generation(), index.page_bits()), (Generation(9), bits(6)));
    assert_eq!(slot_of(&index, worker).number(), 0);
    assert_eq!(depth(&mut index, worker, &prompt()), 3);
    // The prompt is one run.
    let page = bits(6).page_of(prompt()[0]);
    assert_eq!(index.changed_since(position).map(|(_, page)| page).collect::<Vec<_>>(), [page]);
}

#[test]
fn more_pages_are_wanted_when_they_are_full() {
    let mut index = index(1, 1);
    let worker = index.add_worker(identity(0)).unwrap();
    let blocks: Vec<u32> = (0..49).collect();
    index.apply(worker, &Event::Stored(stored(None, &blocks[..48]))).unwrap();
    assert_eq!(index.wants_pages(), None);
    index.apply(worker, &Event::Stored(stored(Some(47), &blocks[48..]))).unwrap();
    assert_eq!(index.wants_pages(), Some(bits(2)));
    index.begin_generation(Generation(2), bits(2));
    assert_eq!(index.wants_pages(), None);
}

#[test]
fn a_page_that_is_not_there_is_empty() {
    let mut index = index(1, 2);
    assert!(Page::parse(&index.page(u32::MAX)).unwrap().is_empty());
    assert_eq!(index.page_version(u32::MAX), 0);
}
