//! Prompts that are text: the collector is asked, and whatever comes of it the request goes on.

use warmroute_routing::prompt_blocks::PromptBlocks;

use super::*;
use crate::host::CallHost;

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;

fn config() -> &'static str {
    r#"{"pools":[{"name":"p","prompts":{"cluster":"c","max_wait_ms":30,"max_wait_us_per_kib":0}}],
        "decision_header":"x-decision","recent_routes_ms":0,"max_held_bytes":200}"#
}

fn chat_host() -> FakeHost {
    let host = host();
    host.set_request_header(":path", "/v1/chat/completions?beta");
    host
}

/// What the collector answers about a prompt of these tokens.
fn answer(tokens: &[u32], block_size: u32, extent: Extent) -> CallAnswer {
    let hashes = sequence_hashes(tokens, block_size, Namespace::default());
    let token_count = tokens.len() as u32;
    let blocks = PromptBlocks { extent, block_size, token_count, hashes, tokens: None };
    CallAnswer { status: Some(200), body: blocks.encode() }
}

/// A request whose body is there, and what the filter says to that.
struct Sent {
    exchange: Exchange,
    flow: Flow,
}

fn send(host: &FakeHost, filter: &mut Filter, body: &str, step: usize) -> Sent {
    let mut exchange = Exchange::default();
    host.body.borrow_mut().clear();
    assert_eq!(exchange.request_headers(host, filter, false), Flow::Hold);
    let (flow, _) = send_body(&mut exchange, host, filter, body.as_bytes(), step);
    Sent { exchange, flow }
}

fn asked(host: &FakeHost, filter: &mut Filter, exchange: &mut Exchange) -> Option<(CallId, u64)> {
    exchange.ask(host, filter, |call, body| host.post(call, body))
}

/// The decision header of a request that ends now.
fn end(host: &FakeHost, filter: &mut Filter, mut exchange: Exchange) -> String {
    exchange.response_headers(host, filter);
    exchange.done(host, filter);
    assert_eq!(filter.load(address(8001)), Load::default());
    host.response_headers.borrow().get("x-decision").cloned().unwrap_or_default()
}

fn outcomes(host: &FakeHost) -> Vec<(String, u64)> {
    let mut outcomes = host.touched_metrics();
    outcomes.retain(|(name, _)| name.starts_with("warmroute_prompt_questions_total"));
    let label = |name: &str| name.split(['=', ';']).nth(2).unwrap_or_default().to_owned();
    outcomes.into_iter().map(|(name, count)| (label(&name), count)).collect()
}

#[test]
fn a_text_prompt_goes_to_the_worker_that_holds_its_blocks_however_its_body_is_cut() {
    for (path, body) in [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", r#"{"prompt":"hello","model":"m"}"#),
        ("/v1/completions", r#"{"prompt":["hello","you"]}"#),
        ("/v1/responses", r#"{"input":"hello"}"#),
        ("/v1/messages", r#"{"system":"x","messages":[{"role":"user","content":"hello"}],"max_tokens":5}"#),
        ("/generate", r#"{"text":"hello","input_ids":null}"#),
    ] {
        for step in 1..=body.len() {
            let host = host();
            host.set_request_header(":path", path);
            let mut filter = filter(&host, config());
            let Sent { mut exchange, flow } = send(&host, &mut filter, body, step);
            assert_eq!(flow, Flow::Ask, "{body}");
            let (_, budget_us) = asked(&host, &mut filter, &mut exchange).unwrap();
            assert_eq!(budget_us, 30_000);
            assert_eq!(*host.posts.borrow(), [body.as_bytes()]);
            assert_eq!(*host.post_paths.borrow(), [format!("/v1/prompt-blocks?pool=p&path={path}")]);
            assert_eq!(destination(&host), None);
            host.now_us.set(2_000);
            let answer = answer(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 4, Extent::Whole);
            exchange.answered(&host, &mut filter, Some(&answer));
            assert_eq!(destination(&host).as_deref(), Some("127.0.0.1:8001"));
            let decision = end(&host, &mut filter, exchange);
            let told = "steered worker=127.0.0.1:8001 rank=0 cached_blocks=2 prompt_blocks=2 page_reads=1 waited_us=2000";
            assert_eq!(decision, told);
        }
    }
}

#[test]
fn what_comes_before_an_image_counts() {
    let host = chat_host();
    let mut filter = filter(&host, config());
    let Sent { mut exchange, .. } = send(&host, &mut filter, CHAT, 99);
    asked(&host, &mut filter, &mut exchange).unwrap();
    let answer = answer(&[1, 2, 3, 4, 5], 4, Extent::Prefix);
    exchange.answered(&host, &mut filter, Some(&answer));
    assert!(
        end(&host, &mut filter, exchange)
            .starts_with("steered worker=127.0.0.1:8001 rank=0 cached_blocks=1+")
    );
}

#[test]
fn whatever_the_collector_does_the_request_goes_on_and_is_counted() {
    let good = answer(&[1, 2, 3, 4, 5], 4, Extent::Whole);
    let with_status = |status| Some(CallAnswer { status, ..good.clone() });
    let cases = [
        (None, "late", "collector_late"),
        (with_status(Some(504)), "late", "collector_late"),
        (with_status(None), "unavailable", "collector_unavailable"),
        (with_status(Some(503)), "unavailable", "collector_unavailable"),
        (with_status(Some(422)), "refused", "collector_refused"),
        (Some(CallAnswer { body: b"{}".to_vec(), ..good.clone() }), "malformed", "collector_malformed"),
        (Some(answer(&[1; 64], 16, Extent::Whole)), "malformed", "collector_malformed"),
        (Some(answer(&[1, 2, 3], 4, Extent::Whole)), "answered", "short_prompt"),
        (Some(answer(&[9; 8], 4, Extent::Whole)), "answered", "cold prompt_blocks=2 page_reads=1"),
    ];
    for (answer, outcome, reason) in cases {
        let host = chat_host();
        let mut filter = filter(&host, config());
        let Sent { mut exchange, .. } = send(&host, &mut filter, CHAT, 99);
        asked(&host, &mut filter, &mut exchange).unwrap();
        host.now_us.set(7_000);
        exchange.answered(&host, &mut filter, answer.as_ref());
        assert_eq!(destination(&host), None);
        assert_eq!(outcomes(&host), [(outcome.to_owned(), 1)]);
        assert_eq!(host.metric("warmroute_prompt_wait_us;pool=p"), 7_000);
        let told = format!("fallback reason={reason} waited_us=7000");
        assert_eq!(end(&host, &mut filter, exchange), told);
    }
}

#[test]
fn a_call_that_cannot_be_made_holds_nobody() {
    let host = chat_host();
    let mut filter = filter(&host, config());
    host.refuse_calls.set(true);
    let Sent { mut exchange, flow } = send(&host, &mut filter, CHAT, 99);
    assert_eq!(flow, Flow::Ask);
    assert_eq!(asked(&host, &mut filter, &mut exchange), None);
    assert_eq!(outcomes(&host), [("unavailable".to_owned(), 1)]);
    assert_eq!(end(&host, &mut filter, exchange), "fallback reason=collector_unavailable");
}

#[test]
fn a_request_that_ends_first_leaves_nothing_behind_and_a_later_answer_finds_nobody() {
    let host = chat_host();
    let mut filter = filter(&host, config());
    let Sent { mut exchange, .. } = send(&host, &mut filter, CHAT, 99);
    let (call, budget_us) = asked(&host, &mut filter, &mut exchange).unwrap();
    filter.questions.wait(call, (1, std::rc::Weak::new()), 0, budget_us);
    exchange.done(&host, &mut filter);
    assert!(filter.questions.take(call).is_none());
    assert_eq!(outcomes(&host), [("abandoned".to_owned(), 1)]);
    exchange.answered(&host, &mut filter, Some(&answer(&[1, 2, 3, 4], 4, Extent::Whole)));
    assert_eq!(destination(&host), None);
    exchange.done(&host, &mut filter);
    assert_eq!(outcomes(&host), [("abandoned".to_owned(), 1)]);
    assert_eq!(filter.load(address(8001)), Load::default());
}

#[test]
fn a_body_beyond_the_limit_is_let_go_as_soon_as_it_is_known_to_be_text() {
    let long = format!(r#"{{"messages":[{{"role":"user","content":"{}"}}]}}"#, "a".repeat(300));
    // By what it says of itself.
    let host = chat_host();
    host.set_request_header("content-length", &long.len().to_string());
    let mut filter = filter(&host, config());
    let mut exchange = Exchange::default();
    exchange.request_headers(&host, &mut filter, false);
    assert_eq!(send_body(&mut exchange, &host, &mut filter, long.as_bytes(), 20), (Flow::Continue, 1));
    assert_eq!(end(&host, &mut filter, exchange), "fallback reason=body_too_large");
    // By what has come of it: in pieces, or all at once.
    host.remove_request_header("content-length");
    for (step, pieces) in [(20, 11), (1_000, 1)] {
        let mut exchange = Exchange::default();
        host.body.borrow_mut().clear();
        exchange.request_headers(&host, &mut filter, false);
        let let_go = send_body(&mut exchange, &host, &mut filter, long.as_bytes(), step);
        assert_eq!(let_go, (Flow::Continue, pieces));
        assert_eq!(end(&host, &mut filter, exchange), "fallback reason=body_too_large");
    }
    assert!(host.posts.borrow().is_empty());
}

#[test]
fn nobody_is_asked_about_what_needs_no_answer() {
    for (config, body, reason) in [
        (config(), r#"{"messages":[]"#, "malformed_body"),
        (config(), r#"{"messages":[],"prompt":[1],"input_ids":[2]}"#, "duplicate_prompt"),
        (config(), r#"{"messages":[],"prompt_embeds":"x"}"#, "embeds"),
        (config(), r#"{"messages":null,"model":"m"}"#, "no_tokens"),
        (config(), r#"{"text":"a","extra_key":"b"}"#, "unknown_namespace"),
        // Nobody has cached anything of a salt.
        (config(), r#"{"messages":[],"cache_salt":"s"}"#, "cold"),
        // Nobody can be asked.
        (r#"{"pools":[{"name":"p"}],"paths":["/*"],"decision_header":"x-decision"}"#, CHAT, "text_prompt"),
    ] {
        let host = chat_host();
        assert_eq!(decision_on(&host, config, body), format!("fallback reason={reason}"), "{body}");
        assert!(host.posts.borrow().is_empty(), "{body}");
    }
    let host = chat_host();
    let tokens = r#"{"messages":[],"prompt":[1,2,3,4,5]}"#;
    assert!(decision_on(&host, config(), tokens).starts_with("steered worker=127.0.0.1:8001 "));
    assert!(host.posts.borrow().is_empty());
}

#[test]
fn an_index_in_other_blocks_by_the_time_of_the_answer_is_not_looked_into() {
    let host = chat_host();
    let mut filter = filter(&host, config());
    let Sent { mut exchange, .. } = send(&host, &mut filter, CHAT, 99);
    asked(&host, &mut filter, &mut exchange).unwrap();
    let pool = Pool {
        generation: Generation(2),
        page_bits: PageBits::new(0).unwrap(),
        block_size: 16,
        base_models: vec![],
        namespaced: false,
        workers: vec![],
    };
    let published = Published { set: KeySet::B, position: 1, heard_at_us: 0, pool: &pool.encode() };
    host.put(PoolKeys::new("p").published(), &published.encode());
    let answer = answer(&[1, 2, 3, 4, 5], 4, Extent::Whole);
    exchange.answered(&host, &mut filter, Some(&answer));
    assert_eq!(end(&host, &mut filter, exchange), "fallback reason=no_index waited_us=0");
}

#[test]
fn a_text_prompt_with_trailers_is_asked_about_and_more_callbacks_change_nothing() {
    let host = chat_host();
    let mut filter = filter(&host, config());
    let mut exchange = Exchange::default();
    exchange.request_headers(&host, &mut filter, false);
    host.body.borrow_mut().extend_from_slice(CHAT.as_bytes());
    assert_eq!(exchange.request_body(&host, &mut filter, CHAT.len(), false), Flow::Hold);
    assert_eq!(exchange.request_trailers(&host, &mut filter), Flow::Ask);
    asked(&host, &mut filter, &mut exchange).unwrap();
    assert_eq!(exchange.request_trailers(&host, &mut filter), Flow::Hold);
    assert_eq!(exchange.request_body(&host, &mut filter, CHAT.len(), true), Flow::Hold);
    assert_eq!(asked(&host, &mut filter, &mut exchange), None);
    exchange.answered(&host, &mut filter, Some(&answer(&[1, 2, 3, 4], 4, Extent::Whole)));
    assert_eq!(destination(&host).as_deref(), Some("127.0.0.1:8001"));
    assert_eq!(host.posts.borrow().len(), 1);
}

#[test]
fn the_engine_is_handed_the_tokens_where_it_is_configured_and_its_api_takes_them() {
    let handing =
        r#"{"pools":[{"name":"p","prompts":{"cluster":"c","hand_over_tokens":true}}],"recent_routes_ms":0}"#;
    let observing = handing.replacen('{', r#"{"mode":"observe","#, 1);
    let good = answer(&[1, 2, 3, 4, 5], 4, Extent::Whole);
    let with_tokens = |extent| {
        let mut blocks = PromptBlocks::decode(&good.body).unwrap();
        (blocks.extent, blocks.tokens) = (extent, Some(vec![1, 2, 3, 4, 5]));
        CallAnswer { status: Some(200), body: blocks.encode() }
    };
    let (text, tokens) = (r#"{"prompt":"hello","n":1}"#, r#"{"prompt":[1,2,3,4,5],"n":1}"#);
    let generate = r#"{"text":"hello"}"#;
    let late = CallAnswer { status: Some(504), body: vec![] };
    let cases = [
        (handing, "/v1/completions?x", text, with_tokens(Extent::Whole), tokens, "&tokens=true"),
        (
            handing,
            "/generate",
            generate,
            with_tokens(Extent::Whole),
            r#"{"input_ids":[1,2,3,4,5]}"#,
            "&tokens=true",
        ),
        (handing, "/v1/completions", text, with_tokens(Extent::Prefix), text, "&tokens=true"),
        (handing, "/v1/completions", text, good.clone(), text, "&tokens=true"),
        (handing, "/v1/completions", text, late, text, "&tokens=true"),
        (handing, "/v1/chat/completions", CHAT, with_tokens(Extent::Whole), CHAT, ""),
        (config(), "/v1/completions", text, with_tokens(Extent::Whole), text, ""),
        (&observing, "/v1/completions", text, with_tokens(Extent::Whole), text, "&tokens=true"),
    ];
    for (config, path, body, answer, expected, query) in cases {
        for announced in [true, false] {
            let host = host();
            host.set_request_header(":path", path);
            if announced {
                host.set_request_header("content-length", &body.len().to_string());
            }
            let mut filter = filter(&host, config);
            let Sent { mut exchange, .. } = send(&host, &mut filter, body, 99);
            asked(&host, &mut filter, &mut exchange).unwrap();
            let path = path.trim_end_matches("?x");
            assert_eq!(*host.post_paths.borrow(), [format!("/v1/prompt-blocks?pool=p&path={path}{query}")]);
            exchange.answered(&host, &mut filter, Some(&answer));
            assert_eq!(String::from_utf8_lossy(&host.body.borrow()), expected, "{path}");
            let length = host.request_header("content-length");
            assert_eq!(length, announced.then(|| expected.len().to_string().into_bytes()), "{path}");
        }
    }
}
