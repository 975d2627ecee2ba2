use warmroute_routing::Tier;
use warmroute_routing::choose::Load;
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::page::{Generation, Holder, PageBits, PageHeader, PageWriter, Slot};
use warmroute_routing::pool::{Pool, Worker, WorkerState};

mod bursts;
mod comparisons;
mod text;
mod wishes;

use super::*;
use crate::config::{Config, Role};
use crate::host::fake::FakeHost;
use crate::shared::{KeySet, PoolKeys, Published};

const DESTINATION: &str = "x-gateway-destination-endpoint";
const PROMPT: &str = r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9]}"#;

fn filter(host: &FakeHost, config: &str) -> Filter {
    let Role::Filter(config) = Config::parse(config.as_bytes()).unwrap().role else { panic!("not a filter") };
    Filter::new(config, host, 0)
}

/// A proxy with an index in which 127.0.0.1:8001 holds the tokens 1 to 8, in blocks of 4.
fn host() -> FakeHost {
    host_with(false)
}

/// The same, in a pool that has cached blocks of adapters or salts.
fn namespaced_host() -> FakeHost {
    host_with(true)
}

fn host_with(namespaced: bool) -> FakeHost {
    let host = FakeHost::default();
    let hashes = sequence_hashes(&[1, 2, 3, 4, 5, 6, 7, 8], 4, Namespace::default());
    let slot = Slot::new(0).unwrap();
    let mut records = hashes.clone();
    records.sort_unstable();
    let mut writer = PageWriter::default();
    records.iter().for_each(|hash| writer.record(*hash, [Holder { slot, tier: Tier::Gpu }]));
    let page = writer.finish(PageHeader { number: 0, generation: Generation(1), version: 1 });
    host.put(PoolKeys::new("p").page(KeySet::A, 0), &page);
    let pool = Pool {
        generation: Generation(1),
        page_bits: PageBits::new(0).unwrap(),
        block_size: 4,
        base_models: vec![],
        namespaced,
        workers: vec![Worker { slot, address: address(8001), rank: 0, state: WorkerState::Up }],
    };
    let pool = pool.encode();
    let published = Published { set: KeySet::A, position: 1, heard_at_us: 0, pool: &pool };
    host.put(PoolKeys::new("p").published(), &published.encode());
    for (name, value) in
        [(":path", "/v1/completions"), (":method", "POST"), ("content-type", "application/json")]
    {
        host.set_request_header(name, value);
    }
    host
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn plain() -> &'static str {
    r#"{"pools":[{"name":"p"}],"decision_header":"x-decision"}"#
}

/// Where nothing but the index counts, so that what it does not have is left to the proxy.
fn without_recent() -> &'static str {
    r#"{"pools":[{"name":"p"}],"decision_header":"x-decision","recent_routes_ms":0}"#
}

fn destination(host: &FakeHost) -> Option<String> {
    host.request_header(DESTINATION).map(|value| String::from_utf8(value).unwrap())
}

/// Sends a body in pieces of `step` bytes; returns what the filter said to the last, and how many it was given.
fn send_body(
    exchange: &mut Exchange,
    host: &FakeHost,
    filter: &mut Filter,
    body: &[u8],
    step: usize,
) -> (Flow, usize) {
    for (i, piece) in body.chunks(step).enumerate() {
        host.body.borrow_mut().extend_from_slice(piece);
        let held = host.body.borrow().len();
        if exchange.request_body(host, filter, held, false) == Flow::Continue {
            return (Flow::Continue, i + 1);
        }
    }
    let held = host.body.borrow().len();
    (exchange.request_body(host, filter, held, true), usize::MAX)
}

/// What the decision header says of a request with this body.
fn decision_on(host: &FakeHost, config: &str, body: &str) -> String {
    let mut filter = filter(host, config);
    let mut exchange = Exchange::default();
    if exchange.request_headers(host, &mut filter, body.is_empty()) == Flow::Hold {
        assert_eq!(send_body(&mut exchange, host, &mut filter, body.as_bytes(), 7).0, Flow::Continue);
    }
    exchange.response_headers(host, &mut filter);
    exchange.done(host, &mut filter);
    assert_eq!(filter.load(address(8001)), Load::default());
    host.response_headers.borrow().get("x-decision").cloned().unwrap_or_default()
}

#[test]
fn a_prompt_in_the_body_is_steered_however_it_is_cut() {
    for step in 1..PROMPT.len() {
        let host = host();
        let mut filter = filter(&host, plain());
        let mut exchange = Exchange::default();
        assert_eq!(exchange.request_headers(&host, &mut filter, false), Flow::Hold);
        assert_eq!(send_body(&mut exchange, &host, &mut filter, PROMPT.as_bytes(), step).0, Flow::Continue);
        assert_eq!(destination(&host).as_deref(), Some("127.0.0.1:8001"), "in pieces of {step}");
    }
}

#[test]
fn a_prompt_in_a_header_is_steered_without_the_body_and_the_header_is_removed() {
    let block_hashes: Vec<_> = sequence_hashes(&[1, 2, 3, 4, 5, 6, 7, 8], 4, Namespace::default());
    let block_hashes: Vec<_> = block_hashes.iter().map(|hash| format!("{:016x}", hash.0)).collect();
    let cases = [
        ("x-warmroute-tokens", "1,2,3,4,5,6,7,8".to_owned()),
        ("x-warmroute-tokens-base64", "AQAAAAIAAAADAAAABAAAAAUAAAAGAAAABwAAAAgAAAA=".to_owned()),
        ("x-warmroute-block-hashes", block_hashes.join(",")),
    ];
    let config = r#"{"pools":[{"name":"p"}],"trust_block_hashes":true}"#;
    for (name, value) in cases {
        let host = host();
        let mut filter = filter(&host, config);
        host.set_request_header(name, &value);
        assert_eq!(Exchange::default().request_headers(&host, &mut filter, false), Flow::Continue);
        assert_eq!(destination(&host).as_deref(), Some("127.0.0.1:8001"), "{name}");
        assert_eq!(host.request_header(name), None, "{name}");
    }
}

#[test]
fn block_hashes_from_an_untrusted_hop_are_removed_and_not_read() {
    let host = host();
    let mut filter = filter(&host, plain());
    host.set_request_header("x-warmroute-block-hashes", "0123456789abcdef");
    assert_eq!(Exchange::default().request_headers(&host, &mut filter, false), Flow::Hold);
    assert_eq!(host.request_header("x-warmroute-block-hashes"), None);
}

#[test]
fn a_clients_destination_is_removed_from_every_request() {
    for (path, method) in [("/v1/completions", "POST"), ("/upload", "PUT"), ("/", "GET")] {
        let host = host();
        let mut filter = filter(&host, plain());
        host.set_request_header(":path", path);
        host.set_request_header(":method", method);
        host.set_request_header(DESTINATION, "10.0.0.1:22");
        Exchange::default().request_headers(&host, &mut filter, true);
        assert_eq!(destination(&host), None, "{method} {path}");
    }
}

#[test]
fn requests_that_are_not_ours_are_never_held() {
    let host = host();
    let mut filter = filter(&host, plain());
    host.set_request_header(":path", "/v1/files");
    assert_eq!(Exchange::default().request_headers(&host, &mut filter, false), Flow::Continue);
    assert_eq!(host.touched_metrics(), []);
}

#[test]
fn a_request_whose_body_cannot_tell_is_never_held() {
    let cases: [(&str, &str, &str); 5] = [
        ("content-type", "multipart/form-data; boundary=x", "fallback reason=content_type"),
        ("content-type", "application/grpc", "fallback reason=content_type"),
        ("content-encoding", "gzip", "fallback reason=compressed"),
        ("upgrade", "websocket", "fallback reason=upgrade"),
        (":method", "CONNECT", "fallback reason=upgrade"),
    ];
    for (name, value, expected) in cases {
        let host = host();
        host.set_request_header(name, value);
        let (mut filter, mut exchange) = (filter(&host, plain()), Exchange::default());
        assert_eq!(exchange.request_headers(&host, &mut filter, false), Flow::Continue, "{name}: {value}");
        exchange.response_headers(&host, &mut filter);
        assert_eq!(host.response_headers.borrow()["x-decision"], expected);
    }
    assert_eq!(decision_on(&host(), plain(), ""), "fallback reason=no_body");
    let header_mode = r#"{"pools":[{"name":"p"}],"read_body":false,"decision_header":"x-decision"}"#;
    assert_eq!(decision_on(&host(), header_mode, PROMPT), "fallback reason=body_not_read");
}

#[test]
fn json_is_told_by_its_content_type_whatever_its_case_and_parameters() {
    for content_type in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"] {
        let host = host();
        host.set_request_header("content-type", content_type);
        assert!(decision_on(&host, plain(), PROMPT).starts_with("steered"), "{content_type}");
    }
}

#[test]
fn without_an_index_a_body_is_not_waited_for() {
    let host = host();
    host.put("warmroute/1/p/published", b"");
    let (mut filter, mut exchange) = (filter(&host, plain()), Exchange::default());
    assert_eq!(exchange.request_headers(&host, &mut filter, false), Flow::Continue);
    assert_eq!(host.metric("warmroute_requests_total;outcome=fallback;reason=no_index;pool=p"), 1);
}

#[test]
fn bodies_without_token_ids_fall_back_with_their_reason() {
    let cases = [
        (r#"{"prompt":"text"}"#, "text_prompt"),
        (r#"{"messages":[]}"#, "text_prompt"),
        (r#"{"model":"m"}"#, "no_tokens"),
        (r#"{"prompt":[1,2"#, "malformed_body"),
        (r#"{"prompt":[1,-2]}"#, "token_out_of_range"),
        (r#"[1,2]"#, "not_json"),
        (r#"{"prompt":[1,2,3]}"#, "short_prompt"),
        (r#"{"prompt":[9,9,9,9]}"#, "cold prompt_blocks=1 page_reads=1"),
        (r#"{"prompt":[1,2,3,4],"cache_salt":["a","b"]}"#, "unknown_namespace"),
    ];
    for (body, reason) in cases {
        assert_eq!(
            decision_on(&namespaced_host(), without_recent(), body),
            format!("fallback reason={reason}"),
            "{body}"
        );
    }
}

#[test]
fn where_names_matter_they_are_waited_for() {
    let is_cold =
        |text| decision_on(&namespaced_host(), without_recent(), text).starts_with("fallback reason=cold");
    let text = r#"{"prompt":[1,2,3,4,5],"cache_salt":"tenant"}"#;
    assert!(is_cold(text));
    let text = r#"{"prompt":[1,2,3,4,5],"cache_salt":null}"#;
    assert!(decision_on(&namespaced_host(), plain(), text).starts_with("steered"));
    let text = r#"{"cache_salt":"tenant","prompt":[1,2,3,4,5]}"#;
    assert!(is_cold(text));
}

#[test]
fn where_nothing_is_cached_under_any_name_a_prompt_with_one_is_cold() {
    let text = r#"{"cache_salt":"tenant","prompt":[1,2,3,4,5]}"#;
    assert_eq!(decision_on(&host(), plain(), text), "fallback reason=cold");
}

/// How many bytes of a body were held before the decision.
fn held_before_decision(host: &FakeHost, body: &str) -> usize {
    let (mut filter, mut exchange) = (filter(host, plain()), Exchange::default());
    host.set_request_header("content-length", &body.len().to_string());
    assert_eq!(exchange.request_headers(host, &mut filter, false), Flow::Hold);
    let (flow, pieces) = send_body(&mut exchange, host, &mut filter, body.as_bytes(), 1);
    assert_eq!(flow, Flow::Continue);
    pieces
}

#[test]
fn a_cold_prompt_is_decided_by_its_first_block_whatever_follows() {
    let body = format!(r#"{{"model":"m","prompt":[7,7,7,7{}]}}"#, ",7".repeat(100_000));
    assert!(held_before_decision(&host(), &body) < 64);
}

#[test]
fn a_prompt_that_one_worker_holds_is_decided_before_its_end() {
    let body = format!(r#"{{"model":"m","prompt":[1,2,3,4,5,6,7,8{}]}}"#, ",7".repeat(100_000));
    let host = host();
    assert!(held_before_decision(&host, &body) < 64);
    assert_eq!(destination(&host).as_deref(), Some("127.0.0.1:8001"));
}

#[test]
fn the_prompts_length_is_expected_from_the_content_length_and_corrected_at_the_end() {
    let host = host();
    let (mut filter, mut exchange) = (filter(&host, plain()), Exchange::default());
    host.set_request_header("content-length", "2000");
    exchange.request_headers(&host, &mut filter, false);
    let begin = r#"{"prompt":[1,2,3,4,5,6,7,8,9,10"#;
    send_body(&mut exchange, &host, &mut filter, begin.as_bytes(), begin.len());
    // 9 tokens in 31 bytes are 580 in 2,000, of which one block is known to be cached when the decision falls.
    let expected = filter.load(address(8001)).prefill_tokens;
    assert!((500..=580).contains(&expected), "{expected}");
    // The body turns out to be a tenth of that.
    exchange.request_body(&host, &mut filter, 169, false);
    exchange.request_body(&host, &mut filter, 0, true);
    let corrected = filter.load(address(8001)).prefill_tokens;
    assert!((40..=60).contains(&corrected), "{corrected}");
    exchange.done(&host, &mut filter);
    assert_eq!(filter.load(address(8001)), Load::default());
}

#[test]
fn at_the_limit_of_held_bytes_the_decision_falls_by_what_was_read() {
    let config = r#"{"pools":[{"name":"p"}],"max_held_bytes":64}"#;
    let host = namespaced_host();
    let mut filter = filter(&host, config);
    let mut exchange = Exchange::default();
    let long = format!(r#"{{"prompt":[1,2,3,4,5,6,7,8{}]}}"#, ",9".repeat(1000));
    assert_eq!(exchange.request_headers(&host, &mut filter, false), Flow::Hold);
    let (flow, pieces) = send_body(&mut exchange, &host, &mut filter, long.as_bytes(), 16);
    assert_eq!((flow, pieces), (Flow::Continue, 4));
    assert_eq!(destination(&host).as_deref(), Some("127.0.0.1:8001"));
}

#[test]
fn trailers_end_a_body() {
    let host = namespaced_host();
    let mut filter = filter(&host, plain());
    let mut exchange = Exchange::default();
    exchange.request_headers(&host, &mut filter, false);
    host.body.borrow_mut().extend_from_slice(PROMPT.as_bytes());
    assert_eq!(exchange.request_body(&host, &mut filter, PROMPT.len(), false), Flow::Hold);
    assert_eq!(exchange.request_trailers(&host, &mut filter), Flow::Continue);
    assert_eq!(destination(&host).as_deref(), Some("127.0.0.1:8001"));
}

#[test]
fn observing_decides_and_counts_but_does_not_steer() {
    let host = namespaced_host();
    let config = r#"{"pools":[{"name":"p"}],"mode":"observe","decision_header":"x-decision"}"#;
    assert!(decision_on(&host, config, PROMPT).starts_with("observed worker=127.0.0.1:8001"));
    assert_eq!(destination(&host), None);
    assert_eq!(host.metric("warmroute_requests_total;outcome=observed;reason=warm;pool=p"), 1);
    assert_eq!(host.metric("warmroute_cached_blocks_total;pool=p"), 2);
}

#[test]
fn the_pool_is_chosen_by_the_routes_cluster() {
    let config = r#"{"pools":[{"name":"other","clusters":["b"]},{"name":"p","clusters":["a"]}],"decision_header":"x-decision"}"#;
    let with_cluster = |cluster: Option<&str>| {
        let host = host();
        *host.cluster.borrow_mut() = cluster.map(str::to_owned);
        decision_on(&host, config, PROMPT)
    };
    assert!(with_cluster(Some("a")).starts_with("steered"));
    assert_eq!(with_cluster(Some("b")), "fallback reason=no_index");
    assert_eq!(with_cluster(Some("c")), "fallback reason=no_pool");
    assert_eq!(with_cluster(None), "fallback reason=no_pool");
}

#[test]
fn headers_that_are_not_utf8_are_served() {
    for name in
        ["x-warmroute-tokens", "x-warmroute-model", "content-type", ":path", DESTINATION, "content-encoding"]
    {
        let host = host();
        let mut filter = filter(&host, plain());
        host.request_headers.borrow_mut().insert(name.to_owned(), b"\xff\xfe".to_vec());
        Exchange::default().request_headers(&host, &mut filter, true);
        assert_eq!(destination(&host), None, "{name}");
    }
}

#[test]
fn a_request_counts_for_who_serves_it_from_its_decision_to_its_end() {
    let host = host();
    let (mut filter, mut exchange) = (filter(&host, plain()), Exchange::default());
    exchange.request_headers(&host, &mut filter, false);
    send_body(&mut exchange, &host, &mut filter, PROMPT.as_bytes(), 99);
    assert_eq!(filter.load(address(8001)), Load { requests: 1, prefill_tokens: 1, blocks: 2 });

    // The first refused; a retry has gone to another.
    *host.upstream.borrow_mut() = Some("127.0.0.1:8002".to_owned());
    exchange.response_headers(&host, &mut filter);
    assert_eq!(filter.load(address(8001)), Load::default());
    // What that one has of the prompt is not known.
    assert_eq!(filter.load(address(8002)), Load { requests: 1, prefill_tokens: 9, blocks: 2 });

    exchange.response_body(&host, &mut filter, 0);
    assert_eq!(filter.load(address(8002)), Load { requests: 1, prefill_tokens: 0, blocks: 2 });
    exchange.done(&host, &mut filter);
    exchange.done(&host, &mut filter);
    assert_eq!(filter.load(address(8002)), Load::default());
}

#[test]
fn a_request_that_was_not_steered_counts_for_who_serves_it_too() {
    let host = host();
    let (mut filter, mut exchange) = (filter(&host, plain()), Exchange::default());
    exchange.request_headers(&host, &mut filter, true);
    *host.upstream.borrow_mut() = Some("127.0.0.1:8002".to_owned());
    exchange.response_headers(&host, &mut filter);
    assert_eq!(filter.load(address(8002)).requests, 1);
    exchange.done(&host, &mut filter);
    assert_eq!(filter.load(address(8002)), Load::default());
}

/// Sends the prompt; it is served by `port`, with this status.
fn serve(host: &FakeHost, filter: &mut Filter, port: u16, status: &str) -> Option<String> {
    let mut exchange = Exchange::default();
    host.remove_request_header(DESTINATION);
    host.body.borrow_mut().clear();
    exchange.request_headers(host, filter, false);
    send_body(&mut exchange, host, filter, PROMPT.as_bytes(), 99);
    *host.upstream.borrow_mut() = Some(address(port).to_string());
    host.set_response_header(":status", status);
    exchange.response_headers(host, filter);
    exchange.done(host, filter);
    destination(host)
}

#[test]
fn a_worker_that_refuses_is_left_out_for_a_while_and_taken_again_once_it_serves() {
    let host = host();
    let mut filter = filter(&host, plain());
    let first = Some("127.0.0.1:8001".to_owned());
    assert_eq!(serve(&host, &mut filter, 8001, "200"), first);
    // A retry went elsewhere.
    assert_eq!(serve(&host, &mut filter, 8002, "200"), first);
    assert_eq!(serve(&host, &mut filter, 8002, "200"), None);
    host.now_us.set(1_000_001);
    // It answers, but is not available.
    assert_eq!(serve(&host, &mut filter, 8001, "503"), first);
    assert_eq!(serve(&host, &mut filter, 8002, "200"), None);
    host.now_us.set(3_000_002);
    assert_eq!(serve(&host, &mut filter, 8001, "200"), first);
    assert_eq!(serve(&host, &mut filter, 8001, "200"), first);
    // The proxy answers by itself, and asks nobody.
    let mut exchange = Exchange::default();
    exchange.request_headers(&host, &mut filter, false);
    host.body.borrow_mut().clear();
    send_body(&mut exchange, &host, &mut filter, PROMPT.as_bytes(), 99);
    *host.upstream.borrow_mut() = None;
    host.set_response_header(":status", "503");
    exchange.response_headers(&host, &mut filter);
    exchange.done(&host, &mut filter);
    assert_eq!(serve(&host, &mut filter, 8001, "200"), first);
    // An error of the request's own is none of the worker's.
    assert_eq!(serve(&host, &mut filter, 8001, "400"), first);
    assert_eq!(serve(&host, &mut filter, 8001, "200"), first);
}

#[test]
fn a_session_is_one_address_in_base64() {
    let host = host();
    let config = r#"{"pools":[{"name":"p"}],"steering":"stateful_session","destination_header":"x-session"}"#;
    let mut filter = filter(&host, config);
    let mut exchange = Exchange::default();
    exchange.request_headers(&host, &mut filter, false);
    send_body(&mut exchange, &host, &mut filter, PROMPT.as_bytes(), 99);
    assert_eq!(host.request_header("x-session").as_deref(), Some(&b"MTI3LjAuMC4xOjgwMDE="[..]));
}

#[test]
fn the_rank_is_named_only_where_there_are_ranks_and_every_endpoint_listed_has_it() {
    let one_rank = host();
    let mut filter_of_one = filter(&one_rank, plain());
    serve(&one_rank, &mut filter_of_one, 8001, "200");
    assert_eq!(one_rank.request_header("x-data-parallel-rank"), None);

    // Rank 1 of 8001 and rank 0 of 8002 hold the prompt; 8001 has two ranks, 8002 one.
    let host = host();
    let worker = |slot, port, rank| Worker {
        slot: Slot::new(slot).unwrap(),
        address: address(port),
        rank,
        state: WorkerState::Up,
    };
    let pool = Pool {
        generation: Generation(1),
        page_bits: PageBits::new(0).unwrap(),
        block_size: 4,
        base_models: vec![],
        namespaced: false,
        workers: vec![worker(0, 8001, 1), worker(1, 8001, 0), worker(2, 8002, 0)],
    };
    let mut hashes = sequence_hashes(&[1, 2, 3, 4, 5, 6, 7, 8], 4, Namespace::default());
    let deepest = hashes[1];
    hashes.sort_unstable();
    let mut writer = PageWriter::default();
    for hash in hashes {
        let holder = |slot| Holder { slot: Slot::new(slot).unwrap(), tier: Tier::Gpu };
        let all = [holder(0), holder(2)];
        writer.record(hash, all.into_iter().take(if hash == deepest { 1 } else { 2 }));
    }
    let page = writer.finish(PageHeader { number: 0, generation: Generation(1), version: 2 });
    host.put(PoolKeys::new("p").page(KeySet::A, 0), &page);
    let pool = pool.encode();
    let published = Published { set: KeySet::A, position: 2, heard_at_us: 0, pool: &pool };
    host.put(PoolKeys::new("p").published(), &published.encode());
    let mut filter = filter(&host, plain());
    assert_eq!(serve(&host, &mut filter, 8001, "200").as_deref(), Some("127.0.0.1:8001"));
    assert_eq!(host.request_header("x-data-parallel-rank").as_deref(), Some(&b"1"[..]));
}

#[test]
fn the_indexs_age_is_told_where_nobody_refreshes_it_any_more() {
    let host = host();
    let mut filter = filter(&host, plain());
    for now_s in 1..=60 {
        host.now_us.set(now_s * 1_000_000);
        filter.tick(&host);
        filter.tick(&host);
    }
    let metrics = host.metrics.borrow();
    let (_, last, times) = metrics.iter().find(|(name, ..)| name == "warmroute_index_age_ms;pool=p").unwrap();
    assert_eq!((*last, *times), (60_000, 60));
}
