//! Whatever dies, requests are served; whatever comes back is found again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use warmroute_e2e::bootstrap::Publisher;
use warmroute_e2e::{Client, Stack, tokens, wait};

const DEADLINE: Duration = Duration::from_secs(30);
const PROMPT_TOKENS: usize = 512;

/// What was just routed does not count: these scenarios are about what is known of the engines.
fn index_alone() -> Value {
    json!({ "recent_routes_ms": 0 })
}

/// What the filter decides about a prompt. The prompt is in a header, and the engine refuses the rest: nothing is computed.
async fn decision_on(stack: &Stack, prompt: &[u32]) -> Result<String> {
    let list = prompt.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let probe = Client::http1(stack.url())?.post("/generate").header("x-warmroute-tokens", list).body("");
    let response = probe.send().await?;
    Ok(response.headers().get("x-warmroute-decision").context("no decision")?.to_str()?.to_owned())
}

/// Waits until a prompt is steered to the engine of that number.
async fn wait_until_steered(stack: &Stack, engine: usize, prompt: &[u32]) -> Result<()> {
    let address = stack.engines().get(engine).context("no such engine")?.address();
    let told = format!("steered worker={address} ");
    let waited = wait::until_ok(DEADLINE, format!("steering to {address}"), async || {
        let decision = decision_on(stack, prompt).await?;
        ensure!(decision.starts_with(&told), "{decision}");
        Ok(())
    });
    waited.await.with_context(|| stack.envoy.log())
}

async fn compute_at(stack: &Stack, engine: usize, prompt: &[u32]) -> Result<()> {
    let engine = stack.engines().get(engine).context("no such engine")?;
    Client::http1(engine.url())?.complete(prompt, 1).await?;
    Ok(())
}

/// Each way to publish does.
async fn publishes(name: &str, publisher: Publisher) -> Result<()> {
    let stack = Stack::builder(name).publisher(publisher).filter(index_alone()).start().await?;
    let prompt = tokens(1, PROMPT_TOKENS);
    compute_at(&stack, 3, &prompt).await?;
    wait_until_steered(&stack, 3, &prompt).await?;
    stack.stop().await
}

#[tokio::test]
async fn a_bootstrap_singleton_publishes() -> Result<()> {
    publishes("singleton", Publisher::Singleton).await
}

#[tokio::test]
async fn an_elected_worker_publishes() -> Result<()> {
    publishes("elected", Publisher::Worker).await
}

#[tokio::test]
async fn without_a_collector_every_request_is_served_by_the_fallback() -> Result<()> {
    let mut stack = Stack::builder("no-collector").publisher(Publisher::Absent).start().await?;
    stack.collector.kill_hard()?;
    let client = Client::http1(stack.url())?;
    for seed in 0..20 {
        let answer = client.complete(&tokens(seed % 2, PROMPT_TOKENS), 1).await?;
        ensure!(answer.status.is_success(), "{answer:?}");
        ensure!(answer.decision() == Some("fallback reason=no_index"), "{:?}", answer.decision());
    }
    let counted = stack.envoy.prometheus().await?;
    let sum = counted.sum("warmroute_requests_total", &[("outcome", "fallback"), ("reason", "no_index")]);
    ensure!(sum == 20.0, "{sum}");
    stack
        .stop()
        .await
        .or_else(|error| if format!("{error:#}").contains("collector") { Ok(()) } else { Err(error) })
}

#[tokio::test]
async fn the_old_index_serves_while_the_collector_is_dead_and_the_new_one_takes_over() -> Result<()> {
    let mut stack = Stack::builder("collector-restart").filter(index_alone()).start().await?;
    let (old, new) = (tokens(1, PROMPT_TOKENS), tokens(2, PROMPT_TOKENS));
    compute_at(&stack, 1, &old).await?;
    wait_until_steered(&stack, 1, &old).await?;

    stack.collector.kill_hard()?;
    let client = Client::http1(stack.url())?;
    for _ in 0..20 {
        let answer = client.complete(&old, 1).await?;
        ensure!(
            answer.decision().is_some_and(|text| text.starts_with("steered worker=")),
            "{:?}",
            answer.decision()
        );
        ensure!(answer.usage.cached_tokens > 0, "{answer:?}");
    }
    // What is computed meanwhile comes by replay.
    compute_at(&stack, 2, &new).await?;
    stack.collector.restart().await?;
    wait_until_steered(&stack, 2, &new).await?;
    wait_until_steered(&stack, 1, &old).await?;
    stack.stop().await
}

#[tokio::test]
async fn an_engine_that_restarts_on_its_port_has_its_old_blocks_forgotten() -> Result<()> {
    let mut stack = Stack::builder("engine-restart").filter(index_alone()).start().await?;
    let (before, after) = (tokens(1, PROMPT_TOKENS), tokens(2, PROMPT_TOKENS));
    compute_at(&stack, 0, &before).await?;
    wait_until_steered(&stack, 0, &before).await?;

    stack.engine_mut(0)?.kill_hard()?;
    stack.engine_mut(0)?.restart().await?;
    // vLLM says nothing when it starts: its first event, with a sequence number that has gone back, tells.
    compute_at(&stack, 0, &after).await?;
    wait_until_steered(&stack, 0, &after).await?;

    // Where nobody holds the old prompt, nobody is named; it was not computed anywhere else.
    wait::until_ok(DEADLINE, "the old blocks to be forgotten", async || {
        let decision = decision_on(&stack, &before).await?;
        ensure!(decision.starts_with("fallback reason=cold"), "{decision}");
        Ok(())
    })
    .await?;
    let counted = stack.collector.metrics().await?;
    ensure!(counted.sum("warmroute_collector_resets_total", &[("reason", "restart")]) >= 1.0);
    stack.stop().await
}

#[tokio::test]
async fn an_index_that_is_too_old_is_not_used_and_is_again_once_it_is_fresh() -> Result<()> {
    let mut stack = Stack::builder("stale")
        .filter(json!({ "max_index_age_ms": 15_000, "recent_routes_ms": 0 }))
        .start()
        .await?;
    let prompt = tokens(1, PROMPT_TOKENS);
    compute_at(&stack, 1, &prompt).await?;
    wait_until_steered(&stack, 1, &prompt).await?;
    stack.collector.process_mut().freeze()?;
    let client = Client::http1(stack.url())?;
    wait::until_ok(DEADLINE, "the index to be too old", async || {
        let answer = client.complete(&prompt, 1).await?;
        ensure!(answer.status.is_success(), "{answer:?}");
        let decision = answer.decision().unwrap_or_default();
        ensure!(decision == "fallback reason=stale_index", "{decision}");
        Ok(())
    })
    .await?;
    stack.collector.process_mut().thaw()?;
    wait_until_steered_to_any(&stack, &prompt).await?;
    stack.stop().await
}

/// By now other engines have computed the prompt too.
async fn wait_until_steered_to_any(stack: &Stack, prompt: &[u32]) -> Result<()> {
    let client = Client::http1(stack.url())?;
    wait::until_ok(DEADLINE, "steering", async || {
        let answer = client.complete(prompt, 1).await?;
        ensure!(answer.decision().is_some_and(|text| text.starts_with("steered")), "{:?}", answer.decision());
        Ok(())
    })
    .await
}
