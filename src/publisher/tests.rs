use warmroute_routing::feed::AnswerWriter;
use warmroute_routing::hash::SequenceHash;
use warmroute_routing::page::{Generation, Page, PageBits, PageHeader, PageWriter};
use warmroute_routing::pool::Pool;

use super::*;
use crate::host::fake::FakeHost;
use crate::shared::{KeySet, PoolKeys, Published};

const SECOND: u64 = 1_000_000;
const BITS: PageBits = PageBits::new(2).unwrap();

fn config() -> PublisherConfig {
    PublisherConfig {
        cluster: "collector".into(),
        authority: "collector".into(),
        long_poll_ms: 1_000,
        tick_ms: 100,
        max_answer_bytes: 65_536,
        lease_ms: 3_000,
    }
}

fn host() -> FakeHost {
    let host = FakeHost::default();
    host.now_us.set(1_000 * SECOND);
    host
}

fn publisher(host: &FakeHost, owner: u64) -> Publisher {
    Publisher::new("p", &config(), false, owner, host)
}

fn page(number: u32, generation: u64, version: u64) -> Vec<u8> {
    let mut writer = PageWriter::default();
    writer.record(SequenceHash(version), []);
    writer.finish(PageHeader { number, generation: Generation(generation), version })
}

/// An answer of the collector: its pages as `(number, version)`, and the cursor.
fn answer(generation: u64, position: u64, next_page: u32, pages: &[(u32, u64)]) -> CallAnswer {
    let pool = Pool {
        generation: Generation(generation),
        page_bits: BITS,
        block_size: 16,
        base_models: vec![],
        namespaced: false,
        workers: vec![],
    };
    let mut writer = AnswerWriter::new(&pool);
    pages.iter().for_each(|(number, version)| writer.page(&page(*number, generation, *version)));
    let cursor = Cursor { generation: Generation(generation), position, next_page };
    CallAnswer { status: Some(200), body: writer.finish(cursor) }
}

/// What a reader sees: the published set, position and generation, and the versions of the pages of that generation.
fn published(host: &FakeHost) -> Option<(KeySet, u64, u64, Vec<Option<u64>>)> {
    let value = host.shared("warmroute/1/p/published")?;
    let published = Published::decode(&value.bytes).unwrap();
    let generation = published.decode_pool().unwrap().generation;
    let mut keys = PoolKeys::new("p");
    let version = |number| {
        let bytes = host.shared(keys.page(published.set, number))?.bytes;
        let header = Page::parse(&bytes).ok()?.header();
        (header.generation == generation).then_some(header.version)
    };
    Some((published.set, published.position, generation.0, (0..BITS.page_count()).map(version).collect()))
}

fn last_call(host: &FakeHost) -> (CallId, String) {
    let calls = host.calls.borrow();
    (CallId(calls.len() as u32), calls.last().unwrap().clone())
}

/// Answers the last call.
fn reply(publisher: &mut Publisher, host: &FakeHost, answer: &CallAnswer) {
    publisher.answered(host, last_call(host).0, answer);
}

/// A publisher that has made a full copy of generation 1.
fn with_copy(host: &FakeHost, owner: u64) -> Publisher {
    let mut publisher = publisher(host, owner);
    publisher.tick(host);
    reply(&mut publisher, host, &answer(1, 10, 4, &[(0, 3), (2, 9)]));
    publisher
}

#[test]
fn a_full_copy_is_published_only_when_it_is_complete() {
    let host = host();
    let mut publisher = publisher(&host, 1);
    publisher.tick(&host);
    assert_eq!(
        last_call(&host).1,
        "/v1/pools/p/feed?generation=0&position=0&page=0&wait_ms=1000&max_bytes=65536"
    );
    reply(&mut publisher, &host, &answer(1, 10, 2, &[(0, 3), (1, 4)]));
    assert_eq!(published(&host), None);
    // The rest is asked for at once, by the cursor of the answer.
    assert!(last_call(&host).1.contains("generation=1&position=10&page=2"));
    reply(&mut publisher, &host, &answer(1, 10, 4, &[(3, 10)]));
    assert_eq!(published(&host), Some((KeySet::A, 10, 1, vec![Some(3), Some(4), None, Some(10)])));
}

#[test]
fn changes_are_written_in_place_and_an_older_version_never_over_a_later_one() {
    let host = host();
    let mut publisher = with_copy(&host, 1);
    reply(&mut publisher, &host, &answer(1, 12, 4, &[(0, 12)]));
    assert_eq!(published(&host), Some((KeySet::A, 12, 1, vec![Some(12), None, Some(9), None])));
    reply(&mut publisher, &host, &answer(1, 13, 4, &[(0, 11), (2, 13)]));
    assert_eq!(published(&host), Some((KeySet::A, 13, 1, vec![Some(12), None, Some(13), None])));
}

#[test]
fn a_position_that_was_wrong_is_mended_by_a_full_copy() {
    let host = host();
    let mut publisher = with_copy(&host, 1);
    reply(&mut publisher, &host, &answer(1, u64::MAX, 4, &[]));
    let next = |publisher: &mut Publisher| {
        host.now_us.set(host.now_us.get() + 2 * SECOND);
        publisher.tick(&host);
    };
    reply(&mut publisher, &host, &answer(1, 12, 4, &[(0, 12)]));
    next(&mut publisher);
    assert!(last_call(&host).1.contains("generation=0&position=0&page=0"));
    reply(&mut publisher, &host, &answer(1, 12, 4, &[(0, 12), (2, 9)]));
    assert_eq!(published(&host), Some((KeySet::A, 12, 1, vec![Some(12), None, Some(9), None])));
}

#[test]
fn a_server_that_answers_without_waiting_is_asked_once_a_tick() {
    let host = host();
    let mut publisher = with_copy(&host, 1);
    let before = host.calls.borrow().len();
    for _ in 0..100 {
        // Nothing new each time.
        reply(&mut publisher, &host, &answer(1, 10, 4, &[]));
        publisher.tick(&host);
    }
    assert_eq!(host.calls.borrow().len(), before + 100);
    reply(&mut publisher, &host, &answer(1, 10, 4, &[]));
    assert_eq!(host.calls.borrow().len(), before + 100, "only a tick asks again");
}

#[test]
fn several_collectors_in_turn_are_told_of_and_do_not_keep_the_thread_busy() {
    let host = host();
    let mut publisher = with_copy(&host, 1);
    let before = host.calls.borrow().len();
    // Ten seconds of ticks, each answered at once by the other collector.
    for round in 0..100 {
        reply(&mut publisher, &host, &answer(2 + round % 2, 5, 2, &[(0, 1)]));
        host.now_us.set(host.now_us.get() + SECOND / 10);
        publisher.tick(&host);
    }
    let asked = host.calls.borrow().len() - before;
    assert!((5..=30).contains(&asked), "asked {asked} times");
    assert_eq!(host.log.borrow().iter().filter(|line| line.contains("several collectors")).count(), 1);
}

#[test]
fn a_new_generation_is_copied_beside_the_old_one_which_serves_until_then() {
    let host = host();
    let mut publisher = with_copy(&host, 1);
    reply(&mut publisher, &host, &answer(2, 5, 3, &[(0, 1), (1, 2)]));
    assert_eq!(published(&host), Some((KeySet::A, 10, 1, vec![Some(3), None, Some(9), None])));
    reply(&mut publisher, &host, &answer(2, 5, 4, &[(3, 5)]));
    assert_eq!(published(&host), Some((KeySet::B, 5, 2, vec![Some(1), Some(2), None, Some(5)])));

    // What the old generation took is given back.
    publisher.tick(&host);
    let shared = host.shared.borrow();
    let old: Vec<_> = shared.iter().filter(|(key, _)| key.starts_with("warmroute/1/p/a/")).collect();
    assert!(!old.is_empty() && old.iter().all(|(_, (bytes, _))| bytes.is_empty()), "{old:?}");
}

#[test]
fn a_successor_goes_on_from_the_published_position() {
    let host = host();
    let _dead = with_copy(&host, 1);
    host.now_us.set(host.now_us.get() + 4 * SECOND);
    let mut successor = publisher(&host, 2);
    successor.tick(&host);
    assert!(last_call(&host).1.contains("generation=1&position=10&page=4"));
}

#[test]
fn a_copy_that_its_publisher_did_not_finish_is_done_anew_and_never_mixed_in() {
    let host = host();
    let mut dead = with_copy(&host, 1);
    reply(&mut dead, &host, &answer(2, 5, 2, &[(0, 1), (1, 2)]));
    host.now_us.set(host.now_us.get() + 4 * SECOND);
    // By now the collector has restarted again.
    let mut successor = publisher(&host, 2);
    successor.tick(&host);
    assert!(last_call(&host).1.contains("generation=1&position=10&page=4"));
    reply(&mut successor, &host, &answer(3, 7, 1, &[(0, 7)]));
    assert_eq!(published(&host), Some((KeySet::A, 10, 1, vec![Some(3), None, Some(9), None])));
    reply(&mut successor, &host, &answer(3, 7, 4, &[(2, 6)]));
    // Page 1 of generation 2 is still there, but reads as absent.
    assert_eq!(published(&host), Some((KeySet::B, 7, 3, vec![Some(7), None, Some(6), None])));
}

#[test]
fn who_has_lost_the_lease_writes_nothing_any_more() {
    let host = host();
    let mut first = with_copy(&host, 1);
    let waiting = last_call(&host).0;
    host.now_us.set(host.now_us.get() + 4 * SECOND);
    let mut second = publisher(&host, 2);
    second.tick(&host);
    let calls = host.calls.borrow().len();
    first.answered(&host, waiting, &answer(1, 20, 4, &[(0, 20)]));
    first.tick(&host);
    assert_eq!(published(&host), Some((KeySet::A, 10, 1, vec![Some(3), None, Some(9), None])));
    assert_eq!(host.calls.borrow().len(), calls, "it has stopped asking");
}

#[test]
fn failures_are_told_once_and_tried_again_ever_more_slowly() {
    let host = host();
    let mut publisher = publisher(&host, 1);
    host.refuse_calls.set(true);
    let mut attempts = 0;
    for _ in 0..100 {
        publisher.tick(&host);
        host.now_us.set(host.now_us.get() + SECOND / 10);
        attempts = host.metric("warmroute_publisher_failures_total;pool=p");
    }
    assert!((5..=15).contains(&attempts), "{attempts} attempts in 10 s");
    host.refuse_calls.set(false);
    host.now_us.set(host.now_us.get() + 2 * SECOND);
    publisher.tick(&host);
    reply(&mut publisher, &host, &answer(1, 10, 4, &[]));
    assert!(published(&host).is_some());
}

#[test]
fn bad_answers_change_nothing() {
    let host = host();
    let mut publisher = with_copy(&host, 1);
    let before = published(&host);
    let mut cut = answer(1, 20, 4, &[(0, 20)]);
    cut.body.pop();
    let mut foreign = answer(1, 20, 4, &[(0, 20)]);
    foreign.body[0] = b'X';
    let bad = [
        CallAnswer { status: None, body: vec![] },
        CallAnswer { status: Some(504), body: b"upstream request timeout".to_vec() },
        CallAnswer { status: Some(200), body: vec![] },
        cut,
        foreign,
    ];
    for answer in bad {
        reply(&mut publisher, &host, &answer);
        assert_eq!(published(&host), before);
        host.now_us.set(host.now_us.get() + 2 * SECOND);
        publisher.tick(&host);
    }
    reply(&mut publisher, &host, &answer(1, 20, 4, &[(0, 20)]));
    assert_ne!(published(&host), before);
}

#[test]
fn an_answer_that_never_comes_is_given_up() {
    let host = host();
    let mut publisher = publisher(&host, 1);
    publisher.tick(&host);
    let late = last_call(&host).0;
    for _ in 0..200 {
        host.now_us.set(host.now_us.get() + SECOND / 10);
        publisher.tick(&host);
    }
    assert!(host.calls.borrow().len() > 1);
    // And if it comes after all, it is not taken for the answer to another call.
    publisher.answered(&host, late, &answer(1, 10, 4, &[(0, 3)]));
    assert_eq!(published(&host), None);
}

#[test]
fn a_write_that_loses_its_race_is_tried_again() {
    let host = host();
    let mut publisher = publisher(&host, 1);
    publisher.tick(&host);
    host.lose_next_write();
    reply(&mut publisher, &host, &answer(1, 10, 4, &[(0, 3)]));
    assert_eq!(published(&host), Some((KeySet::A, 10, 1, vec![Some(3), None, None, None])));
}
