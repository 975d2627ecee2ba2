//! A request reaches the worker that holds its prefix.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use warmroute_e2e::bootstrap::POOL;
use warmroute_e2e::client::completion;
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{
    Answer, Client, ProxyOptions, Samples, ScriptedFeed, Stack, Upstream, ports, tokens, wait,
};

const DEADLINE: Duration = Duration::from_secs(20);
const PROMPT_TOKENS: usize = 512;

/// What was just routed does not count: these scenarios are about what the engines say that they have.
fn index_alone() -> Value {
    json!({ "recent_routes_ms": 0 })
}

/// Makes an engine compute a prompt, and waits until the filter has heard of it.
async fn warm(stack: &Stack, engine: usize, prompt: &[u32]) -> Result<SocketAddr> {
    let engine = stack.engines().get(engine).context("no such engine")?;
    Client::http1(engine.url())?.complete(prompt, 1).await?;
    let client = Client::http1(stack.url())?;
    // A probe in a header, on a path that costs an engine nothing.
    let list = header_list(prompt);
    let told = format!("worker={} ", engine.address());
    wait::until_ok(DEADLINE, "the filter to hear of the prompt", async || {
        let probe = client.post("/generate").header("x-warmroute-tokens", &list).body("").send().await?;
        let decision =
            probe.headers().get("x-warmroute-decision").context("no decision")?.to_str()?.to_owned();
        ensure!(decision.contains(&told), "{decision}");
        Ok(())
    })
    .await?;
    Ok(engine.address())
}

fn header_list(prompt: &[u32]) -> String {
    prompt.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn base64_list(prompt: &[u32]) -> String {
    let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn assert_warm(answer: &Answer, worker: SocketAddr) {
    assert_eq!(answer.engine(), Some(worker.to_string().as_str()), "{:?}", answer.decision());
    // A prompt that is cached whole has its last block computed again.
    assert_eq!(answer.usage.cached_tokens, PROMPT_TOKENS as u64 - 16, "{:?}", answer.decision());
    let decision = answer.decision().unwrap_or_default();
    assert!(decision.starts_with(&format!("steered worker={worker} rank=0 cached_blocks=32")), "{decision}");
}

#[tokio::test]
async fn steers_by_body_and_by_header_over_http1_and_http2() -> Result<()> {
    let stack = Stack::builder("steering").filter(index_alone()).start().await?;
    for (number, client) in [Client::http1(stack.url())?, Client::http2(stack.url())?].iter().enumerate() {
        for engine in 0..4 {
            let prompt = tokens((number * 4 + engine) as u64, PROMPT_TOKENS);
            let worker = warm(&stack, engine, &prompt).await?;
            assert_warm(&client.complete(&prompt, 1).await?, worker);
            assert_warm(&client.stream(&prompt, 1).await?, worker);
            let body = completion(&prompt, 1);
            let list = header_list(&prompt);
            assert_warm(&client.send(body.clone(), &[("x-warmroute-tokens", &list)]).await?, worker);
            let base64 = base64_list(&prompt);
            assert_warm(&client.send(body, &[("x-warmroute-tokens-base64", &base64)]).await?, worker);
        }
    }
    stack.stop().await
}

#[tokio::test]
async fn steers_by_the_first_of_several_prompts() -> Result<()> {
    let stack = Stack::builder("list-of-lists").filter(index_alone()).start().await?;
    let (first, second) = (tokens(1, PROMPT_TOKENS), tokens(2, PROMPT_TOKENS));
    let worker = warm(&stack, 2, &first).await?;
    warm(&stack, 3, &second).await?;
    let body = json!({ "model": "sim", "prompt": [first, second], "max_tokens": 1 });
    let answer = Client::http1(stack.url())?.send(body, &[]).await?;
    ensure!(answer.engine() == Some(worker.to_string().as_str()), "{answer:?}");
    stack.stop().await
}

#[tokio::test]
async fn model_and_salt_make_the_namespace_wherever_they_stand() -> Result<()> {
    let stack =
        Stack::builder("namespaces").engine_flags(["--lora", "ad1"]).filter(index_alone()).start().await?;
    let prompt = tokens(1, PROMPT_TOKENS);
    let plain = warm(&stack, 0, &prompt).await?;
    let salted = json!({ "cache_salt": "tenant", "model": "ad1", "prompt": prompt, "max_tokens": 1 });
    let other = stack.engines().get(1).context("no engine")?;
    Client::http1(other.url())?.send(salted, &[]).await?;
    let client = Client::http1(stack.url())?;
    // The names after the prompt: they are read before the decision.
    let text =
        format!(r#"{{"max_tokens":1,"prompt":{},"cache_salt":"tenant","model":"ad1"}}"#, json!(prompt));
    let served = wait::until_ok(DEADLINE, "the salted prompt to be steered", async || {
        let request = client.post("/v1/completions").header("content-type", "application/json");
        let response = request.body(text.clone()).send().await?;
        let decision =
            response.headers().get("x-warmroute-decision").context("no decision")?.to_str()?.to_owned();
        ensure!(decision.contains(&format!("worker={} ", other.address())), "{decision}");
        Ok(response.headers().get("x-simengine").context("no engine")?.to_str()?.to_owned())
    })
    .await?;
    ensure!(served == other.address().to_string());
    assert_warm(&client.complete(&prompt, 1).await?, plain);
    // A tenant that has computed nothing has nothing.
    let stranger = json!({ "cache_salt": "stranger", "model": "sim", "prompt": prompt, "max_tokens": 1 });
    let answer = client.send(stranger, &[]).await?;
    ensure!(answer.decision().is_some_and(|text| text.starts_with("fallback reason=cold")), "{answer:?}");
    stack.stop().await
}

#[tokio::test]
async fn a_retry_takes_the_second_worker_when_the_first_refuses_connections() -> Result<()> {
    let (second, third) = (Upstream::start().await?, Upstream::start().await?);
    let dead: SocketAddr = ports::free()?;
    let workers = [dead, second.address(), third.address()];
    let prompt = tokens(1, PROMPT_TOKENS);
    // The dead worker holds all of the prompt, the second most of it, the third nothing.
    let most = prompt.get(..PROMPT_TOKENS / 2).context("a short prompt")?;
    let index = ScriptedIndex::new(101, 4, &workers).with(dead, &prompt).with(second.address(), most);
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let mut options = ProxyOptions::new("retry", &workers, feed.address())?;
    // Who comes second is told by the cache alone: under load, as another thread had it a moment ago, it may be the third.
    let pools = json!([{ "name": POOL, "clusters": ["workers"], "policy": { "name": "prefix" } }]);
    options.filter = json!({ "pools": pools });
    let proxy = options.start().await?;
    let told = format!("steered worker={dead} ");
    wait::until_ok(DEADLINE, "the dead worker to be named", async || {
        let echo = proxy.send(&prompt, &[]).await?;
        let decision = echo.decision.as_deref().unwrap_or_default();
        ensure!(decision.starts_with(&told), "{decision}");
        ensure!(echo.served_by == second.address(), "{echo:?}");
        Ok(())
    })
    .await?;
    // From then on it is left out for a while, and named again: whoever is named, the second worker serves.
    for _ in 0..20 {
        let echo = proxy.send(&prompt, &[]).await?;
        ensure!(echo.served_by == second.address(), "{echo:?}");
    }
    proxy.stop().await
}

#[tokio::test]
async fn observe_mode_decides_and_counts_but_does_not_steer() -> Result<()> {
    let stack = Stack::builder("observe").filter(json!({ "mode": "observe" })).start().await?;
    let prompt = tokens(1, PROMPT_TOKENS);
    let warm_worker = warm(&stack, 0, &prompt).await?;
    let client = Client::http1(stack.url())?;
    let mut served = std::collections::BTreeSet::new();
    for _ in 0..32 {
        let answer = client.complete(&prompt, 1).await?;
        let decision = answer.decision().unwrap_or_default();
        ensure!(decision.starts_with("observed worker="), "{decision}");
        served.extend(answer.engine().map(str::to_owned));
    }
    ensure!(served.len() > 1 && served.contains(&warm_worker.to_string()), "served by {served:?}");
    let counted = stack.envoy.prometheus().await?;
    let sum = |outcome| counted.sum("warmroute_requests_total", &[("outcome", outcome), ("pool", "llama")]);
    ensure!(sum("steered") == 0.0 && sum("observed") >= 32.0);
    stack.stop().await
}

#[tokio::test]
async fn what_cannot_be_decided_is_served_and_counted_by_reason() -> Result<()> {
    // A pool of which nobody tokenizes text.
    let pools = json!({ "pools": [{ "name": POOL, "clusters": ["workers"] }] });
    let stack = Stack::builder("fallbacks").filter(index_alone()).filter(pools).start().await?;
    stack.wait_until_steering().await?;
    let before = stack.envoy.prometheus().await?;
    let client = Client::http1(stack.url())?;
    let cases: [(&str, &str, Value); 4] = [
        ("short_prompt", "application/json", json!({ "model": "sim", "prompt": [1, 2, 3], "max_tokens": 1 })),
        ("cold", "application/json", completion(&tokens(9, 64), 1)),
        ("text_prompt", "application/json", json!({ "model": "sim", "prompt": "hello", "max_tokens": 1 })),
        ("content_type", "text/plain", completion(&tokens(9, 64), 1)),
    ];
    for (reason, content_type, body) in cases {
        let request = client.post("/v1/completions").header("content-type", content_type);
        let response = request.body(body.to_string()).send().await?;
        let decision =
            response.headers().get("x-warmroute-decision").context("no decision")?.to_str()?.to_owned();
        ensure!(decision.starts_with(&format!("fallback reason={reason}")), "{decision}");
        ensure!(response.headers().contains_key("x-simengine"), "{reason} was not served");
    }
    let after = stack.envoy.prometheus().await?;
    for reason in ["short_prompt", "cold", "text_prompt", "content_type"] {
        let labels = [("outcome", "fallback"), ("reason", reason), ("pool", "llama")];
        let count = |samples: &Samples| samples.sum("warmroute_requests_total", &labels);
        ensure!(count(&after) - count(&before) == 1.0, "{reason}");
    }
    stack.stop().await
}
