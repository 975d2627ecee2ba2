use std::net::SocketAddr;

use proptest::prelude::*;
use warmroute_routing::Tier;
use warmroute_routing::choose::{LongestPrefix, Rule, Weighed};
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::loads::WorkerKey;
use warmroute_routing::page::{Generation, Holder, PageBits, PageHeader, PageWriter, Slot};
use warmroute_routing::pool::{Pool, Worker, WorkerState};

use super::*;
use crate::failures::Failures;
use crate::fleet::Fleet;
use crate::host::fake::FakeHost;
use crate::ledger::Work;
use crate::sessions::Sessions;
use crate::shared::{KeySet, PoolKeys, Published};
use crate::trust::Trust;
use crate::wishes::Wishes;

const BOUNDS: Bounds = Bounds { max_index_age_us: 30_000_000, max_page_reads: 64, max_destinations: 2 };
const BITS: PageBits = PageBits::new(0).unwrap();

fn address(worker: u16) -> SocketAddr {
    ([127, 0, 0, 1], 8000 + worker).into()
}

/// Publishes an index of one page, in which worker `i` holds the first `depths[i]` blocks of `tokens`.
fn publish(host: &FakeHost, tokens: &[u32], namespace: Namespace, depths: &[u32]) {
    let hashes = sequence_hashes(tokens, 4, namespace);
    let slot = |i: usize| Slot::new(i as u16).unwrap();
    let mut records: Vec<_> = hashes.iter().enumerate().collect();
    records.sort_by_key(|(_, hash)| **hash);
    let mut writer = PageWriter::default();
    for (block, hash) in records {
        let holders = depths.iter().enumerate().filter(|(_, depth)| **depth as usize > block);
        writer.record(*hash, holders.map(|(i, _)| Holder { slot: slot(i), tier: Tier::Gpu }));
    }
    let page = writer.finish(PageHeader { number: 0, generation: Generation(1), version: 1 });
    host.put(PoolKeys::new("p").page(KeySet::A, 0), &page);
    let worker =
        |i: usize| Worker { slot: slot(i), address: address(i as u16), rank: 0, state: WorkerState::Up };
    let pool = Pool {
        generation: Generation(1),
        page_bits: BITS,
        block_size: 4,
        base_models: vec!["base".into()],
        namespaced: true,
        workers: (0..depths.len()).map(worker).collect(),
    };
    let pool = pool.encode();
    let published = Published { set: KeySet::A, position: 1, heard_at_us: 0, pool: &pool };
    host.put(PoolKeys::new("p").published(), &published.encode());
}

/// Asks for a whole prompt.
fn decide(host: &FakeHost, tokens: &[u32], namespace: Namespace, now_us: u64) -> Decision {
    let (mut index, mut ledger) = (IndexReader::new("p"), Ledger::default());
    let mut around = Surroundings {
        host,
        index: &mut index,
        ledger: &mut ledger,
        fleet: &Fleet::new("p"),
        failures: &Failures::default(),
        recent: None,
        trust: &Trust::default(),
        sessions: &mut Sessions::new("p", 1_000_000),
        rule: &Rule::default(),
        bounds: BOUNDS,
        now_us,
    };
    let hashes = sequence_hashes(tokens, 4, namespace);
    let asked =
        Asked { hashes: &hashes, block_size: 4, tokens: tokens.len() as u64, whole: true, last: true };
    Inquiry::new(0, Wishes::default()).advance(&mut around, &asked).unwrap()
}

fn decide_now(host: &FakeHost, tokens: &[u32]) -> Decision {
    decide(host, tokens, Namespace::default(), 1_000)
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).collect()
}

fn reason(decision: &Decision) -> Option<Reason> {
    match decision {
        Decision::Route(_) => None,
        Decision::Fallback(fallback) => Some(fallback.reason),
    }
}

#[test]
fn the_worker_with_the_longest_prefix_comes_first() {
    let (host, tokens) = (FakeHost::default(), tokens(42));
    publish(&host, &tokens, Namespace::default(), &[3, 7, 0]);
    let Decision::Route(route) = decide_now(&host, &tokens) else { panic!("not routed") };
    assert_eq!(route.destinations, [address(1), address(0)]);
    assert_eq!((route.cached_blocks, route.uncached_tokens, route.lookup.prompt_blocks), (7, 42 - 28, 10));
}

#[test]
fn another_namespace_does_not_match() {
    let (host, tokens) = (FakeHost::default(), tokens(40));
    let tenant = Namespace::new(Some("ad1"), Some("tenant"));
    publish(&host, &tokens, tenant, &[5]);
    assert_eq!(reason(&decide(&host, &tokens, tenant, 0)), None);
    for other in
        [Namespace::default(), Namespace::new(Some("ad1"), None), Namespace::new(None, Some("tenant"))]
    {
        assert_eq!(reason(&decide(&host, &tokens, other, 0)), Some(Reason::Cold));
    }
}

#[test]
fn what_cannot_be_decided_falls_back_with_its_reason() {
    let (host, tokens) = (FakeHost::default(), tokens(40));
    assert_eq!(reason(&decide_now(&host, &tokens)), Some(Reason::NoIndex));
    publish(&host, &tokens, Namespace::default(), &[]);
    assert_eq!(reason(&decide_now(&host, &tokens)), Some(Reason::NoWorkers));
    publish(&host, &tokens, Namespace::default(), &[5]);
    assert_eq!(reason(&decide_now(&host, &tokens[..3])), Some(Reason::ShortPrompt));
    assert_eq!(reason(&decide_now(&host, &tokens[4..])), Some(Reason::Cold));
    assert_eq!(reason(&decide(&host, &tokens, Namespace::default(), 31_000_000)), Some(Reason::StaleIndex));
}

#[test]
fn the_header_says_where_and_why() {
    let (host, tokens) = (FakeHost::default(), tokens(40));
    publish(&host, &tokens, Namespace::default(), &[3, 7]);
    let steered = decide_now(&host, &tokens).to_string();
    assert!(steered.starts_with("worker=127.0.0.1:8001 rank=0 cached_blocks=7 prompt_blocks=10 page_reads="));
    assert_eq!(Decision::fallback(Reason::NoIndex).to_string(), "reason=no_index");
}

#[test]
fn reasons_have_distinct_labels() {
    let labels: std::collections::BTreeSet<_> = Reason::all().map(Reason::as_str).collect();
    assert_eq!(labels.len(), Reason::all().count());
}

proptest! {
    #[test]
    fn equal_workers_share_the_requests(workers in 1..6usize) {
        let (host, tokens) = (FakeHost::default(), tokens(16));
        publish(&host, &tokens, Namespace::default(), &vec![4; workers]);
        let (mut index, mut ledger) = (IndexReader::new("p"), Ledger::default());
        let hashes = sequence_hashes(&tokens, 4, Namespace::default());
        let asked = Asked { hashes: &hashes, block_size: 4, tokens: 16, whole: true, last: true };
        let mut counts = vec![0; workers];
        for tie in 0..60 {
            let (host, index, ledger) = (&host, &mut index, &mut ledger);
            let mut around = Surroundings { host, index, ledger, fleet: &Fleet::new("p"), failures: &Failures::default(), recent: None, trust: &Trust::default(), sessions: &mut Sessions::new("p", 1_000_000), rule: &Rule::default(), bounds: BOUNDS, now_us: 0 };
            let decision = Inquiry::new(tie, Wishes::default()).advance(&mut around, &asked).unwrap();
            let Decision::Route(route) = decision else { panic!("not routed") };
            counts[usize::from(route.destinations[0].port() - 8000)] += 1;
        }
        prop_assert!(counts.iter().all(|count| *count == 60 / workers), "{:?}", counts);
    }
}

/// Asks for the first `known` blocks of a prompt whose end has not come.
fn ask(inquiry: &mut Inquiry, host: &FakeHost, tokens: &[u32], known: usize) -> Option<Decision> {
    let (mut index, mut ledger) = (IndexReader::new("p"), Ledger::default());
    let mut around = Surroundings {
        host,
        index: &mut index,
        ledger: &mut ledger,
        fleet: &Fleet::new("p"),
        failures: &Failures::default(),
        recent: None,
        trust: &Trust::default(),
        sessions: &mut Sessions::new("p", 1_000_000),
        rule: &Rule::default(),
        bounds: BOUNDS,
        now_us: 0,
    };
    let hashes = sequence_hashes(&tokens[..known * 4], 4, Namespace::default());
    let asked =
        Asked { hashes: &hashes, block_size: 4, tokens: tokens.len() as u64, whole: false, last: false };
    inquiry.advance(&mut around, &asked)
}

#[test]
fn a_prompt_is_decided_as_soon_as_the_rest_cannot_matter() {
    let (host, tokens) = (FakeHost::default(), tokens(400));
    publish(&host, &tokens, Namespace::default(), &[30, 60]);
    let mut inquiry = Inquiry::new(0, Wishes::default());
    assert_eq!(ask(&mut inquiry, &host, &tokens, 0), None);
    assert_eq!(ask(&mut inquiry, &host, &tokens, 20), None);
    let Some(Decision::Route(route)) = ask(&mut inquiry, &host, &tokens, 31) else { panic!("not decided") };
    assert_eq!(route.destinations[0], address(1));
    // What it was expected to hold of the rest is not counted before it is seen.
    assert_eq!((route.cached_blocks, route.lookup.prompt_blocks), (31, 100));
}

#[test]
fn what_was_found_in_an_older_generation_is_forgotten() {
    let (host, tokens) = (FakeHost::default(), tokens(400));
    publish(&host, &tokens, Namespace::default(), &[90, 60]);
    let mut inquiry = Inquiry::new(0, Wishes::default());
    assert_eq!(ask(&mut inquiry, &host, &tokens, 40), None);
    let value = host.shared("warmroute/1/p/published").unwrap().bytes;
    let published = Published::decode(&value).unwrap();
    let mut pool = published.decode_pool().unwrap();
    pool.generation = Generation(2);
    let pool = pool.encode();
    host.put("warmroute/1/p/published", &Published { pool: &pool, ..published }.encode());
    assert_eq!(reason(&ask(&mut inquiry, &host, &tokens, 50).unwrap()), Some(Reason::Cold));
}

#[test]
fn under_a_rule_that_weighs_load_a_busy_worker_is_left_for_one_that_holds_nothing() {
    let (host, tokens) = (FakeHost::default(), tokens(40));
    publish(&host, &tokens, Namespace::default(), &[8, 0]);
    let (mut index, mut ledger) = (IndexReader::new("p"), Ledger::default());
    let hashes = sequence_hashes(&tokens, 4, Namespace::default());
    let asked = Asked { hashes: &hashes, block_size: 4, tokens: 40, whole: true, last: true };
    let busy = ledger.place(WorkerKey { address: address(0), rank: Some(0) });
    let _under_way = ledger.book(busy, Work { prefill_tokens: 400, blocks: 100 }, 0);
    let mut first = |rule: &Rule| {
        let (index, ledger, failures) = (&mut index, &mut ledger, &Failures::default());
        let mut around = Surroundings {
            host: &host,
            index,
            ledger,
            fleet: &Fleet::new("p"),
            failures,
            recent: None,
            trust: &Trust::default(),
            sessions: &mut Sessions::new("p", 1_000_000),
            rule,
            bounds: BOUNDS,
            now_us: 0,
        };
        let Some(Decision::Route(route)) = Inquiry::new(0, Wishes::default()).advance(&mut around, &asked)
        else {
            panic!("not routed")
        };
        route.destinations[0]
    };
    assert_eq!(first(&Rule::Prefix(LongestPrefix)), address(0));
    assert_eq!(first(&Rule::Cost(Weighed::default())), address(1));
    assert_eq!(first(&Rule::default()), address(1));
}
