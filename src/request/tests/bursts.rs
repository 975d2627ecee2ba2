//! What was just routed counts as cached.

use super::*;
use crate::host::Host;

const SECOND: u64 = 1_000_000;

/// Whoever holds most, whatever is in hand there: where a request goes tells what counts as cached.
const BY_PREFIX: &str =
    r#"{"pools":[{"name":"p","policy":{"name":"prefix"}}],"decision_header":"x-decision"}"#;

/// A proxy with an index of nothing, over workers at 127.0.0.1:8001 and on.
pub(super) fn cold_host(workers: u16) -> FakeHost {
    let host = host();
    let page = PageWriter::default().finish(PageHeader { number: 0, generation: Generation(1), version: 2 });
    host.put(PoolKeys::new("p").page(KeySet::A, 0), &page);
    let worker = |slot| Worker {
        slot: Slot::new(slot).unwrap(),
        address: address(8001 + slot),
        rank: 0,
        state: WorkerState::Up,
    };
    let pool = Pool {
        generation: Generation(1),
        page_bits: PageBits::new(0).unwrap(),
        block_size: 4,
        base_models: vec![],
        namespaced: false,
        workers: (0..workers).map(worker).collect(),
    };
    let pool = pool.encode();
    let published = Published { set: KeySet::A, position: 2, heard_at_us: 0, pool: &pool };
    host.put(PoolKeys::new("p").published(), &published.encode());
    host
}

/// A body whose prompt is `common` tokens that all prompts share, and then eight of its own.
pub(super) fn body(own: u32, common: u32) -> String {
    let tokens: Vec<_> = (0..common).chain((0..8).map(|i| 1000 * own + i)).map(|id| id.to_string()).collect();
    format!(r#"{{"prompt":[{}]}}"#, tokens.join(","))
}

/// Sends a request whose body comes in pieces and leaves it in flight; returns what was decided.
pub(super) fn send(host: &FakeHost, filter: &mut Filter, body: &str, step: usize) -> (Exchange, String) {
    host.body.borrow_mut().clear();
    let mut exchange = Exchange::default();
    assert_eq!(exchange.request_headers(host, filter, false), Flow::Hold);
    let mut decided = false;
    let pieces: Vec<_> = body.as_bytes().chunks(step).collect();
    for (i, piece) in pieces.iter().enumerate() {
        // Once the request goes on, only what is new is there.
        if decided {
            host.body.borrow_mut().clear();
        }
        host.body.borrow_mut().extend_from_slice(piece);
        let len = host.body.borrow().len();
        decided = exchange.request_body(host, filter, len, i + 1 == pieces.len()) == Flow::Continue;
    }
    let decision = exchange.decision_text.clone().unwrap();
    (exchange, decision)
}

pub(super) fn worker_of(decision: &str) -> &str {
    decision.split("worker=").nth(1).unwrap().split(' ').next().unwrap()
}

#[test]
fn a_burst_with_one_new_prefix_follows_its_first_request_also_from_other_threads() {
    let host = cold_host(4);
    let (mut one, mut two) = (filter(&host, BY_PREFIX), filter(&host, BY_PREFIX));
    let (_first, decision) = send(&host, &mut one, &body(1, 400), 1 << 20);
    assert!(decision.contains(" cached_blocks=0 "), "{decision}");
    let worker = worker_of(&decision).to_owned();
    for own in 2..10 {
        let thread = if own % 2 == 0 { &mut two } else { &mut one };
        let (_, decision) = send(&host, thread, &body(own, 400), 1 << 20);
        assert_eq!(worker_of(&decision), worker);
        let cached = decision.split("cached_blocks=").nth(1).unwrap().split(' ').next().unwrap();
        assert!((93..=100).contains(&cached.parse::<u32>().unwrap()), "{decision}");
    }
    assert_eq!(host.metric("warmroute_requests_total;outcome=steered;reason=recent;pool=p"), 8);
    assert_eq!(host.metric("warmroute_requests_total;outcome=steered;reason=cold;pool=p"), 1);
    // After two seconds without an event nobody knows whether it is cached.
    host.now_us.set(2 * SECOND);
    let (_, decision) = send(&host, &mut one, &body(99, 400), 1 << 20);
    assert!(decision.contains(" cached_blocks=0 "), "{decision}");
}

#[test]
fn prompts_that_nobody_has_are_spread_by_load() {
    let host = cold_host(4);
    let mut filter = filter(&host, plain());
    let mut in_flight = vec![];
    for own in 1..=40 {
        in_flight.push(send(&host, &mut filter, &body(own, 0), 1 << 20));
    }
    for port in 8001..=8004 {
        assert_eq!(filter.load(address(port)).requests, 10);
    }
}

#[test]
fn a_prompt_that_was_decided_before_its_end_is_remembered_to_its_end() {
    for step in [16, 100, 1000] {
        let host = cold_host(4);
        let mut filter = filter(&host, BY_PREFIX);
        let (_first, decision) = send(&host, &mut filter, &body(1, 400), step);
        assert!(decision.contains("prompt_blocks=~"), "not early: {decision}");
        let (_, again) = send(&host, &mut filter, &body(1, 400), 1 << 20);
        assert!(again.contains(" cached_blocks=102 prompt_blocks=102 "), "in pieces of {step}: {again}");
        assert_eq!(worker_of(&again), worker_of(&decision));
    }
}

#[test]
fn a_prompt_that_arrives_waits_as_long_as_it_may_share_what_was_just_sent_elsewhere() {
    // The worker that was sent the prefix is the busiest: only all of the prefix outweighs that.
    let config = r#"{"pools":[{"name":"p","policy":{"name":"cost"}}],"decision_header":"x-decision"}"#;
    let host = cold_host(2);
    let mut filter = filter(&host, config);
    let (mut first, decision) = send(&host, &mut filter, &body(1, 4000), 1 << 20);
    let worker = worker_of(&decision).to_owned();
    first.response_body(&host, &mut filter, 0);
    let elsewhere: Vec<_> = (10..30).map(|own| send(&host, &mut filter, &body(own, 40), 1 << 20)).collect();
    drop(elsewhere);
    let (_, decision) = send(&host, &mut filter, &body(2, 4000), 1000);
    assert_eq!(worker_of(&decision), worker, "{decision}");
}

#[test]
fn who_only_observes_remembers_nothing() {
    let host = cold_host(4);
    let config = r#"{"pools":[{"name":"p"}],"decision_header":"x-decision","mode":"observe"}"#;
    let mut filter = filter(&host, config);
    for _ in 0..3 {
        let (_, decision) = send(&host, &mut filter, &body(1, 400), 100);
        assert!(decision.starts_with("observed ") && decision.contains(" cached_blocks=0"), "{decision}");
    }
    assert!(host.shared("warmroute/1/p/recent").is_none());
}
