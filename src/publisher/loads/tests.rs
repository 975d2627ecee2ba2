use warmroute_routing::loads::FleetRow;

use super::*;
use crate::host::fake::FakeHost;
use crate::shared::LoadRow;

const SECOND: u64 = 1_000_000;

fn config() -> PublisherConfig {
    PublisherConfig {
        cluster: "collector".into(),
        authority: "collector".into(),
        long_poll_ms: 1_000,
        tick_ms: 25,
        max_answer_bytes: 65_536,
        lease_ms: 3_000,
    }
}

fn worker() -> WorkerKey {
    WorkerKey { address: ([10, 0, 0, 1], 8000).into(), rank: Some(0) }
}

fn load(requests: u32) -> Load {
    Load { requests, prefill_tokens: 100, blocks: 7 }
}

/// A VM of this proxy has so many requests in flight.
fn book(host: &FakeHost, vm: u64, requests: u32) {
    let mut book = host.shared(LOAD_KEY).map(|value| LoadBook::decode(&value.bytes)).unwrap_or_default();
    let loads = if requests == 0 { vec![] } else { vec![(worker(), load(requests))] };
    book.put(LoadRow { vm, written_at_us: host.now_us(), loads });
    host.put(LOAD_KEY, &book.encode());
}

fn pass(host: &FakeHost, millis: u64) {
    host.now_us.set(host.now_us.get() + millis * 1000);
}

fn last_report(host: &FakeHost) -> (CallId, LoadReport) {
    let posts = host.posts.borrow();
    (CallId(1_000_000 + posts.len() as u32), LoadReport::decode(posts.last().unwrap()).unwrap())
}

fn reported(host: &FakeHost) -> (usize, u32) {
    let report = last_report(host).1;
    (host.posts.borrow().len(), report.rows.iter().map(|(_, load)| load.requests).sum())
}

fn answer(position: u64, requests: u32) -> CallAnswer {
    let rows = vec![FleetRow { worker: worker(), others: load(requests), engine: None }];
    CallAnswer { status: Some(200), body: FleetLoad { position, rows }.encode() }
}

fn start() -> (FakeHost, LoadExchange) {
    let host = FakeHost::default();
    host.now_us.set(1_000 * SECOND);
    let mut exchange = LoadExchange::new("p", 42);
    exchange.tick(&host, &config());
    (host, exchange)
}

#[test]
fn a_report_is_open_always_and_another_goes_out_when_the_load_has_changed() {
    let (host, mut exchange) = start();
    assert_eq!((reported(&host), last_report(&host).1.proxy), ((1, 0), 42));
    pass(&host, 25);
    exchange.tick(&host, &config());
    assert_eq!(reported(&host), (1, 0), "nothing has changed");
    book(&host, 1, 2);
    book(&host, 2, 3);
    exchange.tick(&host, &config());
    assert_eq!(reported(&host), (2, 5));
    // Written anew, and the same.
    book(&host, 1, 2);
    exchange.tick(&host, &config());
    assert_eq!(reported(&host), (2, 5));
    book(&host, 1, 0);
    book(&host, 2, 0);
    exchange.tick(&host, &config());
    assert_eq!(reported(&host), (3, 0));
}

#[test]
fn what_is_told_is_written_for_the_filters_and_asked_for_again_at_once() {
    let (host, mut exchange) = start();
    pass(&host, 500);
    let open = last_report(&host).0;
    exchange.answered(&host, &config(), open, &answer(9, 6));
    let value = host.shared("warmroute/1/p/fleet").unwrap();
    let heard = HeardFleet::decode(&value.bytes).unwrap();
    assert_eq!((heard.heard_at_us, heard.answer), (host.now_us(), answer(9, 6).body.as_slice()));
    assert_eq!((reported(&host).0, last_report(&host).1.position), (2, 9));
    // The answer to a report that another has taken the place of.
    exchange.answered(&host, &config(), open, &answer(8, 1));
    assert_eq!(host.shared("warmroute/1/p/fleet").unwrap(), value);
}

#[test]
fn a_server_that_does_not_wait_is_asked_once_a_tick() {
    let (host, mut exchange) = start();
    for _ in 0..10 {
        exchange.answered(&host, &config(), last_report(&host).0, &answer(9, 6));
        exchange.answered(&host, &config(), last_report(&host).0, &answer(9, 6));
    }
    assert_eq!(host.posts.borrow().len(), 1);
    exchange.tick(&host, &config());
    assert_eq!(host.posts.borrow().len(), 2);
}

#[test]
fn a_collector_without_the_exchange_is_asked_seldom_and_told_of_once() {
    let (host, mut exchange) = start();
    for _ in 0..400 {
        let (open, _) = last_report(&host);
        exchange.answered(&host, &config(), open, &CallAnswer { status: Some(404), body: vec![] });
        pass(&host, 100);
        exchange.tick(&host, &config());
    }
    let asked = host.posts.borrow().len();
    assert!((4..=5).contains(&asked), "asked {asked} times in 40 s");
    assert!(host.shared("warmroute/1/p/fleet").is_none());
}

#[test]
fn a_bad_answer_changes_nothing_and_a_report_that_is_never_answered_is_given_up() {
    let (host, mut exchange) = start();
    for body in [vec![], b"WRLAxx".to_vec()] {
        let (open, _) = last_report(&host);
        exchange.answered(&host, &config(), open, &CallAnswer { status: Some(200), body });
        assert!(host.shared("warmroute/1/p/fleet").is_none());
        pass(&host, 1_000);
        exchange.tick(&host, &config());
    }
    let before = host.posts.borrow().len();
    for _ in 0..100 {
        pass(&host, 100);
        exchange.tick(&host, &config());
    }
    assert_eq!(host.posts.borrow().len(), before + 1, "in 10 s");
}

#[test]
fn what_a_dead_vm_had_in_flight_is_taken_back() {
    let (host, mut exchange) = start();
    book(&host, 1, 4);
    exchange.tick(&host, &config());
    assert_eq!(reported(&host), (2, 4));
    // It dies, and nobody writes the books again.
    for _ in 0..50 {
        pass(&host, 100);
        exchange.tick(&host, &config());
    }
    assert_eq!(reported(&host).1, 0);
}

#[test]
fn gauges_tell_each_workers_load_and_that_it_has_none() {
    let (host, mut exchange) = start();
    let gauge = |source: &str, figure: &str| {
        host.metric(&format!("warmroute_load_{figure};source={source};pool=p;worker=10.0.0.1:8000"))
    };
    book(&host, 1, 4);
    exchange.tick(&host, &config());
    assert_eq!((gauge("own", "requests"), gauge("own", "blocks")), (4, 7));
    pass(&host, 100);
    exchange.answered(&host, &config(), last_report(&host).0, &answer(9, 6));
    assert_eq!((gauge("others", "requests"), gauge("others", "prefill_tokens")), (6, 100));
    book(&host, 1, 0);
    exchange.tick(&host, &config());
    pass(&host, 100);
    let nothing = CallAnswer { status: Some(200), body: FleetLoad::default().encode() };
    exchange.answered(&host, &config(), last_report(&host).0, &nothing);
    assert_eq!([gauge("own", "requests"), gauge("own", "blocks"), gauge("others", "requests")], [0; 3]);
}
