//! Text and chat prompts: the collector is asked, for as long as the budget allows.

#![allow(clippy::indexing_slicing, reason = "a scenario that is wrong fails")]

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep};
use warmroute_e2e::bootstrap::POOL;
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{
    Client, Proxy, ProxyOptions, RawClient, Samples, ScriptedFeed, Stack, StackBuilder, Upstream, tokens,
    wait, workspace,
};
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::prompt_blocks::{Extent, PromptBlocks};

const DEADLINE: Duration = Duration::from_secs(60);

/// The wait that these scenarios allow, and what they allow for on top, in microseconds.
const BUDGET_MS: u64 = 40;
const MARGIN_US: u64 = 10_000;

/// The filter's pools, whose text prompts are waited for so long.
fn asking(max_wait_ms: u64) -> Value {
    let prompts = json!({
        "cluster": "warmroute-collector", "max_wait_ms": max_wait_ms, "max_wait_us_per_kib": 0,
    });
    json!({ "pools": [{ "name": POOL, "clusters": ["workers"], "prompts": prompts }] })
}

/// Engines, and a collector that tokenizes as they do.
fn tokenizing(name: &str, max_wait_ms: u64) -> StackBuilder {
    Stack::builder(name).filter(asking(max_wait_ms)).edit_collector(|config| {
        let model = workspace::root().join("crates/simengine/model");
        config["pools"][0]["prompts"] = json!({ "model": model });
        Ok(())
    })
}

async fn wait_until_tokenizing(stack: &Stack) -> Result<()> {
    let url = format!("{}/v1/prompt-blocks?pool={POOL}&path=/v1/completions", stack.collector.url());
    let client = reqwest::Client::new();
    wait::until_ok(DEADLINE, "the collector to tokenize", async || {
        client.post(&url).body(r#"{"prompt":"a"}"#).send().await?.error_for_status()
    })
    .await?;
    stack.wait_until_steering().await
}

/// Sends a body; what the filter says that it decided, and the answer.
async fn decided(client: &Client, path: &str, body: &Value) -> Result<(String, Value)> {
    let response = client.post(path).json(body).send().await.context("no answer")?;
    let (status, headers) = (response.status(), response.headers().clone());
    ensure!(status == StatusCode::OK, "status {status}: {}", response.text().await?);
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut answer: Value = response.json().await?;
    if let Some(engine) = header("x-simengine") {
        answer["served_by"] = json!(engine);
    }
    Ok((header("x-warmroute-decision").unwrap_or_default(), answer))
}

/// How long a request was waited for, by the filter's own word.
fn waited_us(decision: &str) -> Option<u64> {
    decision.split_once("waited_us=")?.1.parse().ok()
}

fn questions(counted: &Samples, outcome: &str) -> f64 {
    counted.sum("warmroute_prompt_questions_total", &[("outcome", outcome)])
}

#[tokio::test]
async fn a_conversation_of_ten_turns_stays_with_its_worker_from_the_second_turn_on() -> Result<()> {
    // What is looked at is where requests go, not how soon: the budget is more than a busy machine takes.
    let stack = tokenizing("ten-turns", 5_000).start().await?;
    wait_until_tokenizing(&stack).await?;
    let client = Client::http1(stack.url())?;
    let mut conversations: Vec<(Vec<Value>, Option<Value>)> = (0..8)
        .map(|number| {
            let system = format!("{number}. {}", "Be brief, be kind, be exact. ".repeat(20));
            (vec![json!({ "role": "system", "content": system })], None)
        })
        .collect();
    let mut known_tokens = [0; 8];
    for turn in 1..=10 {
        for (number, (messages, worker)) in conversations.iter_mut().enumerate() {
            let question =
                format!("Turn {turn}: what, of {} and «{turn}», is 你好? 👋", "this and that ".repeat(5));
            messages.push(json!({ "role": "user", "content": question }));
            let body = json!({ "model": "sim", "messages": messages, "max_tokens": 40 });
            let (decision, answer) = decided(&client, "/v1/chat/completions", &body).await?;
            let served_by = answer["served_by"].clone();
            ensure!(waited_us(&decision).is_some(), "nobody was asked: {decision}");
            if turn > 1 {
                let told = format!("steered worker={} ", served_by.as_str().unwrap_or_default());
                ensure!(Some(&served_by) == worker.as_ref(), "turn {turn} went elsewhere: {decision}");
                ensure!(decision.starts_with(&told), "turn {turn}: {decision}");
                // All of the turn before is cached, its answer but for the last token included; blocks have 16 tokens.
                let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
                let least = (known_tokens[number] - 1) / 16 * 16;
                ensure!(cached >= Some(least), "turn {turn}: {cached:?} of {least} tokens: {decision}");
            }
            known_tokens[number] = answer["usage"]["total_tokens"].as_u64().context("no usage")?;
            *worker = Some(served_by);
            messages.push(answer["choices"][0]["message"].clone());
        }
    }
    let workers: BTreeSet<String> =
        conversations.iter().filter_map(|(_, worker)| Some(worker.as_ref()?.to_string())).collect();
    ensure!(workers.len() > 1, "all went to {workers:?}");
    let counted = stack.envoy.prometheus().await?;
    ensure!(questions(&counted, "answered") == 80.0, "{} were answered", questions(&counted, "answered"));
    stack.stop().await
}

#[tokio::test]
async fn text_goes_where_its_tokens_would_go() -> Result<()> {
    let stack = tokenizing("text", 5_000).filter(json!({ "recent_routes_ms": 0 })).start().await?;
    wait_until_tokenizing(&stack).await?;
    let text = "A text of some length, with «this» and 👋 that. ".repeat(12);
    let engine = stack.engines()[2].address();
    let direct = Client::http1(stack.engines()[2].url())?;
    direct.send(json!({ "model": "sim", "prompt": text, "max_tokens": 1 }), &[]).await?;
    let told = format!("steered worker={engine} rank=0 cached_blocks={} ", text.len() / 16);
    for client in [Client::http1(stack.url())?, Client::http2(stack.url())?] {
        for body in [
            json!({ "model": "sim", "prompt": text, "max_tokens": 1 }),
            json!({ "prompt": [text], "max_tokens": 1 }),
        ] {
            wait::until_ok(DEADLINE, "the text to be steered", async || {
                let (decision, answer) = decided(&client, "/v1/completions", &body).await?;
                ensure!(decision.starts_with(&told) && answer["served_by"] == json!(engine), "{decision}");
                Ok(())
            })
            .await?;
        }
    }
    // Another adapter's or tenant's blocks are others; what is no prompt is refused by the engine alone.
    let (decision, _) = decided(
        &Client::http1(stack.url())?,
        "/v1/completions",
        &json!({ "prompt": text, "cache_salt": "t" }),
    )
    .await?;
    ensure!(decision.starts_with("fallback reason=cold"), "{decision}");
    stack.stop().await
}

#[tokio::test]
async fn an_engine_that_takes_them_is_handed_the_tokens() -> Result<()> {
    let handing = json!({
        "pools": [{ "name": POOL, "clusters": ["workers"], "prompts": {
            "cluster": "warmroute-collector", "max_wait_ms": 5_000, "hand_over_tokens": true,
        } }],
    });
    let stack = tokenizing("hand-over", 5_000).filter(handing).start().await?;
    wait_until_tokenizing(&stack).await?;
    let text = "A text of some length, with «this» and 👋 that. ".repeat(200);
    for client in [Client::http1(stack.url())?, Client::http2(stack.url())?] {
        // This engine takes no text there: it is served only if it is handed the tokens.
        let body = json!({ "text": text, "sampling_params": { "max_new_tokens": 1 } });
        let (decision, answer) = decided(&client, "/generate", &body).await?;
        ensure!(decision.starts_with("steered"), "{decision}");
        ensure!(answer["meta_info"]["prompt_tokens"] == json!(text.len()), "{answer}");
        // The same prompt, by another API.
        let body = json!({ "model": "sim", "prompt": text, "max_tokens": 1, "return_token_ids": true });
        let (decision, answer) = decided(&client, "/v1/completions", &body).await?;
        ensure!(decision.starts_with("steered"), "{decision}");
        let tokens: Vec<u64> = text.bytes().map(u64::from).collect();
        ensure!(answer["choices"][0]["prompt_token_ids"] == json!(tokens), "{answer}");
        ensure!(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(0), "{answer}");
    }
    stack.stop().await
}

/// Sends text until none of `count` requests in a row has waited for longer than the budget and its margin. A machine that
/// is busy with other things may delay a request now and then; a filter that does not keep to its budget delays each.
async fn wait_until_within_budget(client: &Client, body: &Value, reason: &str, count: usize) -> Result<()> {
    wait::until_ok(DEADLINE, format!("{count} requests within the budget"), async || {
        for _ in 0..count {
            let (decision, _) = decided(client, "/v1/completions", body).await?;
            ensure!(decision.starts_with(&format!("fallback reason={reason}")), "{body}: {decision}");
            let waited_us = waited_us(&decision).unwrap_or_default();
            ensure!(waited_us <= BUDGET_MS * 1000 + MARGIN_US, "{body}: {decision}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn with_the_collector_frozen_or_gone_text_is_served_within_the_budget() -> Result<()> {
    // The index stays good for as long as this takes.
    let stack = tokenizing("no-tokenizer", BUDGET_MS).filter(json!({ "max_index_age_ms": 600_000 }));
    let mut stack = stack.start().await?;
    wait_until_tokenizing(&stack).await?;
    let client = Client::http1(stack.url())?;
    let body = json!({ "model": "sim", "prompt": "a text of more than sixteen bytes", "max_tokens": 1 });
    stack.collector.process_mut().freeze()?;
    wait_until_within_budget(&client, &body, "collector_late", 10).await?;
    stack.collector.kill_hard()?;
    wait_until_within_budget(&client, &body, "collector_unavailable", 10).await?;
    // It comes back, and text is steered again.
    stack.collector.restart().await?;
    wait::until_ok(DEADLINE, "text to be steered again", async || {
        let (decision, _) = decided(&client, "/v1/completions", &body).await?;
        ensure!(decision.starts_with("steered"), "{decision}");
        Ok(())
    })
    .await?;
    stack.stop().await
}

/// Envoy before a worker, with a collector of ours that answers by what stands in the prompt.
struct Scene {
    proxy: Proxy,
    /// Questions that have come, and those that were answered or hung up.
    come: Arc<AtomicUsize>,
    gone: Arc<AtomicUsize>,
    _upstream: Upstream,
    _feed: ScriptedFeed,
}

/// Counts what ends, however it ends.
struct Gone(Arc<AtomicUsize>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bytes that come one at a time, each after a pause.
struct Trickle {
    bytes: std::vec::IntoIter<u8>,
    pause: Duration,
    next: Pin<Box<Sleep>>,
}

// === impl Trickle ===

impl Trickle {
    fn new(bytes: Vec<u8>, pause: Duration) -> Self {
        Self { bytes: bytes.into_iter(), pause, next: Box::pin(sleep(pause)) }
    }

    fn into_response(self) -> Response {
        Body::from_stream(self).into_response()
    }
}

impl Stream for Trickle {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        ready!(self.next.as_mut().poll(context));
        let pause = self.pause;
        self.next.as_mut().reset(Instant::now() + pause);
        Poll::Ready(self.bytes.next().map(|byte| Ok(Bytes::from(vec![byte]))))
    }
}

/// What is cached.
fn cached() -> Vec<u32> {
    tokens(1, 64)
}

fn blocks(block_size: u32) -> Vec<u8> {
    let tokens = cached();
    let hashes = sequence_hashes(&tokens, block_size, Namespace::default());
    let token_count = u32::try_from(tokens.len()).unwrap_or_default();
    PromptBlocks { extent: Extent::Whole, block_size, token_count, hashes, tokens: None }.encode()
}

async fn answer(kind: &str) -> Response {
    let good = blocks(16);
    match kind {
        "good" => good.into_response(),
        "slow" => {
            sleep(Duration::from_secs(1)).await;
            good.into_response()
        }
        "trickle" => Trickle::new(good, Duration::from_millis(10)).into_response(),
        "headers only" => Trickle::new(good, Duration::from_secs(3600)).into_response(),
        "empty" => Vec::new().into_response(),
        "text" => "rubbish".into_response(),
        "cut" => good[..good.len() - 1].to_vec().into_response(),
        "too long" => [good, vec![0]].concat().into_response(),
        "huge" => vec![b'x'; 3_000_000].into_response(),
        "other blocks" => blocks(32).into_response(),
        "no tokens" => {
            let (extent, hashes, tokens) = (Extent::Whole, vec![], None);
            PromptBlocks { extent, block_size: 16, token_count: 0, hashes, tokens }.encode().into_response()
        }
        status => {
            let status = StatusCode::from_bytes(status.as_bytes());
            status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response()
        }
    }
}

async fn scene(name: &str, max_wait_ms: u64) -> Result<Scene> {
    let upstream = Upstream::start().await?;
    let (come, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (came, went) = (Arc::clone(&come), Arc::clone(&gone));
    let handler = async move |body: Bytes| {
        came.fetch_add(1, Ordering::Relaxed);
        let _gone = Gone(Arc::clone(&went));
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        answer(body["prompt"].as_str().unwrap_or_default()).await
    };
    let tokenizer = axum::Router::new().route("/v1/prompt-blocks", post(handler));
    let index = ScriptedIndex::new(101, 4, &[upstream.address()]).with(upstream.address(), &cached());
    let feed = ScriptedFeed::start_beside(tokenizer, move |request| {
        if index.is_known_to(&request) {
            Reply::Unchanged(index.unchanged())
        } else {
            Reply::Bytes(index.all())
        }
    })
    .await?;
    let workers = [upstream.address()];
    let mut options = ProxyOptions::new(name, &workers, feed.address())?;
    options.filter = asking(max_wait_ms);
    options.filter["recent_routes_ms"] = json!(0);
    let proxy = options.start().await?;
    proxy.wait_until_steered_to(upstream.address(), &cached()).await?;
    Ok(Scene { proxy, come, gone, _upstream: upstream, _feed: feed })
}

#[tokio::test]
async fn whatever_the_collector_answers_every_request_is_served_and_none_waits_longer_than_the_budget()
-> Result<()> {
    let scene = scene("bad-answers", BUDGET_MS).await?;
    let client = scene.proxy.client()?;
    let cases = [
        ("slow", "collector_late"),
        ("headers only", "collector_"),
        ("trickle", "collector_"),
        ("empty", "collector_malformed"),
        ("text", "collector_malformed"),
        ("cut", "collector_malformed"),
        ("too long", "collector_malformed"),
        ("huge", "collector_"),
        ("other blocks", "collector_malformed"),
        ("no tokens", "short_prompt"),
        ("400", "collector_refused"),
        ("404", "collector_refused"),
        ("422", "collector_refused"),
        ("500", "collector_unavailable"),
        ("503", "collector_unavailable"),
        ("301", "collector_unavailable"),
        ("204", "collector_unavailable"),
    ];
    for (kind, reason) in cases {
        wait_until_within_budget(&client, &json!({ "prompt": kind }), reason, 10).await?;
    }
    let counted = scene.proxy.envoy.prometheus().await?;
    for outcome in ["answered", "late", "refused", "malformed", "unavailable"] {
        ensure!(questions(&counted, outcome) >= 10.0, "{outcome}: {}", questions(&counted, outcome));
    }
    ensure!(questions(&counted, "abandoned") == 0.0);
    // And those who are answered well are steered, whatever came before.
    wait::until_ok(DEADLINE, "a good answer within the budget", async || {
        let (decision, _) = decided(&client, "/v1/completions", &json!({ "prompt": "good" })).await?;
        ensure!(decision.starts_with("steered worker="), "{decision}");
        Ok(())
    })
    .await?;
    ensure!(!scene.proxy.envoy.log().contains("panicked at"), "{}", scene.proxy.envoy.log());
    scene.proxy.stop().await
}

#[tokio::test]
async fn a_client_that_goes_away_while_its_prompt_is_tokenized_leaves_nothing_behind() -> Result<()> {
    let scene = scene("gone-while-asking", 5_000).await?;
    let body = json!({ "prompt": "slow" }).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), body.as_bytes()].concat();
    for number in 1..=20 {
        let mut client = RawClient::connect(&scene.proxy.envoy.url()).await?;
        client.send(&request).await?;
        wait::until(DEADLINE, "the question", async || {
            (scene.come.load(Ordering::Relaxed) >= number).then_some(())
        })
        .await?;
        drop(client);
    }
    wait::until_ok(DEADLINE, "all to be given up, and their answers to find nobody", async || {
        let counted = scene.proxy.envoy.prometheus().await?;
        let abandoned = questions(&counted, "abandoned");
        ensure!(abandoned == 20.0, "{abandoned} were abandoned");
        let gone = scene.gone.load(Ordering::Relaxed);
        ensure!(gone == 20, "{gone} answers were given");
        let loads = counted.sum("warmroute_load_requests", &[]);
        ensure!(loads == 0.0, "{loads} requests are still booked");
        let open = counted
            .sum("envoy_http_downstream_rq_active", &[("envoy_http_conn_manager_prefix", "warmroute")]);
        ensure!(open == 0.0, "{open} requests are still open");
        Ok(())
    })
    .await?;
    let (decision, _) =
        decided(&scene.proxy.client()?, "/v1/completions", &json!({ "prompt": "slow" })).await?;
    ensure!(decision.starts_with("steered worker="), "{decision}");
    ensure!(!scene.proxy.envoy.log().contains("panicked at"), "{}", scene.proxy.envoy.log());
    scene.proxy.stop().await
}

#[tokio::test]
async fn text_in_pieces_with_trailers_is_steered_and_a_body_beyond_the_limit_is_not_held() -> Result<()> {
    let scene = scene("pieces", 5_000).await?;
    let body = json!({ "prompt": "good", "x": "y".repeat(300) }).to_string();
    let common = "POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n";
    for (step, trailer) in [(1, ""), (7, "x-trailer: 1\r\n"), (1000, "x-trailer: 1\r\n"), (100_000, "")] {
        let mut request = format!("{common}transfer-encoding: chunked\r\n\r\n");
        for chunk in body.as_bytes().chunks(step) {
            write!(request, "{:x}\r\n{}\r\n", chunk.len(), std::str::from_utf8(chunk)?)?;
        }
        write!(request, "0\r\n{trailer}\r\n")?;
        let mut client = RawClient::connect(&scene.proxy.envoy.url()).await?;
        client.send(request.as_bytes()).await?;
        let answer = client.answer().await?;
        ensure!(answer.text.contains("steered worker="), "chunks of {step}: {answer:?}");
        ensure!(answer.text.contains(&format!("\"body_bytes\":{}", body.len())), "{answer:?}");
    }
    let asked = scene.come.load(Ordering::Relaxed);
    for client in [scene.proxy.client()?, Client::http2(scene.proxy.envoy.url())?] {
        for kib in [800, 5_000] {
            let body = json!({ "messages": [{ "role": "user", "content": "z".repeat(kib << 10) }] });
            let (decision, echo) = decided(&client, "/v1/chat/completions", &body).await?;
            ensure!(decision == "fallback reason=body_too_large", "{decision}");
            ensure!(echo["body_bytes"] == json!(body.to_string().len()), "{}", echo["body_bytes"]);
        }
    }
    ensure!(scene.come.load(Ordering::Relaxed) == asked, "somebody was asked");
    scene.proxy.stop().await
}

#[tokio::test]
async fn a_collector_that_envoy_does_not_know_holds_nobody() -> Result<()> {
    let mut filter = asking(5_000);
    filter["pools"][0]["prompts"]["cluster"] = json!("nowhere");
    let stack = Stack::builder("nowhere").filter(filter).start().await?;
    stack.wait_until_steering().await?;
    let client = Client::http1(stack.url())?;
    for _ in 0..20 {
        let body = json!({ "model": "sim", "prompt": "a text of more than sixteen bytes", "max_tokens": 1 });
        let (decision, _) = decided(&client, "/v1/completions", &body).await?;
        ensure!(decision == "fallback reason=collector_unavailable", "{decision}");
    }
    stack.stop().await
}
