use proptest::prelude::*;
use warmroute_routing::Tier;
use warmroute_routing::hash::Namespace;
use warmroute_routing::page::{Generation, Holder, PageBits, PageHeader, PageWriter, Slot};
use warmroute_routing::pool::{Pool, Worker, WorkerState};

use super::*;
use crate::host::fake::FakeHost;
use crate::shared::{KeySet, PoolKeys, Published};

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

fn prompt(tokens: &[u32], model: Option<&str>, salt: Option<&str>) -> PromptSource {
    PromptSource::Tokens { tokens: tokens.to_vec(), model: model.map(Into::into), salt: salt.map(Into::into) }
}

fn decide_now(host: &FakeHost, prompt: &PromptSource) -> Decision {
    decide(host, &mut IndexReader::new("p"), &mut Ledger::default(), prompt, BOUNDS, 1_000, 0)
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
    let Decision::Route(route) = decide_now(&host, &prompt(&tokens, Some("base"), None)) else {
        panic!("not routed")
    };
    assert_eq!(route.destinations, [address(1), address(0)]);
    assert_eq!((route.cached_blocks, route.uncached_tokens, route.lookup.prompt_blocks), (7, 42 - 28, 10));
}

#[test]
fn hashes_from_a_trusted_hop_decide_like_the_tokens_would() {
    let (host, tokens) = (FakeHost::default(), tokens(40));
    publish(&host, &tokens, Namespace::default(), &[3, 7]);
    let hashes = PromptSource::Hashes(sequence_hashes(&tokens, 4, Namespace::default()));
    assert_eq!(decide_now(&host, &hashes), decide_now(&host, &prompt(&tokens, None, None)));
}

#[test]
fn another_adapter_or_tenant_does_not_match() {
    let (host, tokens) = (FakeHost::default(), tokens(40));
    publish(&host, &tokens, Namespace::new(Some("ad1"), Some("tenant")), &[5]);
    assert_eq!(reason(&decide_now(&host, &prompt(&tokens, Some("ad1"), Some("tenant")))), None);
    for (model, salt) in [(Some("base"), Some("tenant")), (Some("ad2"), Some("tenant")), (Some("ad1"), None)]
    {
        assert_eq!(reason(&decide_now(&host, &prompt(&tokens, model, salt))), Some(Reason::Cold));
    }
}

#[test]
fn what_cannot_be_decided_falls_back_with_its_reason() {
    let (host, tokens) = (FakeHost::default(), tokens(40));
    assert_eq!(reason(&decide_now(&host, &prompt(&tokens, None, None))), Some(Reason::NoIndex));
    publish(&host, &tokens, Namespace::default(), &[]);
    assert_eq!(reason(&decide_now(&host, &prompt(&tokens, None, None))), Some(Reason::NoWorkers));
    publish(&host, &tokens, Namespace::default(), &[5]);
    assert_eq!(reason(&decide_now(&host, &prompt(&tokens[..3], None, None))), Some(Reason::ShortPrompt));
    assert_eq!(reason(&decide_now(&host, &prompt(&tokens[4..], None, None))), Some(Reason::Cold));
    let mut reader = IndexReader::new("p");
    let late = 31_000_000;
    let decision =
        decide(&host, &mut reader, &mut Ledger::default(), &prompt(&tokens, None, None), BOUNDS, late, 0);
    assert_eq!(reason(&decision), Some(Reason::StaleIndex));
}

#[test]
fn the_header_says_where_and_why() {
    let (host, tokens) = (FakeHost::default(), tokens(40));
    publish(&host, &tokens, Namespace::default(), &[3, 7]);
    let steered = decide_now(&host, &prompt(&tokens, None, None)).to_string();
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
        let (mut reader, mut ledger) = (IndexReader::new("p"), Ledger::default());
        let mut counts = vec![0; workers];
        for tie in 0..60 {
            let decision = decide(&host, &mut reader, &mut ledger, &prompt(&tokens, None, None), BOUNDS, 0, tie);
            let Decision::Route(route) = decision else { panic!("not routed") };
            counts[usize::from(route.destinations[0].port() - 8000)] += 1;
        }
        prop_assert!(counts.iter().all(|count| *count == 60 / workers), "{:?}", counts);
    }
}
