//! What was predicted of a cache is held against what the engine says that it had.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use warmroute_e2e::proxy::Echo;
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{Client, Proxy, ProxyOptions, ScriptedFeed, Stack, Upstream, tokens, wait};

const DEADLINE: Duration = Duration::from_secs(30);

/// Sends a prompt to a worker that says that it had so many tokens of it cached.
async fn send(proxy: &Proxy, prompt: &[u32], cached_tokens: &str) -> Result<Echo> {
    proxy.send(prompt, &[("x-usage-cached", cached_tokens)]).await
}

#[tokio::test]
async fn a_worker_that_keeps_disproving_the_index_is_not_steered_to_until_it_agrees_again() -> Result<()> {
    let upstreams = [Upstream::start().await?, Upstream::start().await?];
    let workers = upstreams.each_ref().map(Upstream::address);
    let prompt = tokens(1, 513);
    let index = ScriptedIndex::new(101, 4, &workers).with(workers[0], &prompt);
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let mut options = ProxyOptions::new("liar", &workers, feed.address())?;
    options.filter = json!({ "compare_every": 1, "recent_routes_ms": 0 });
    // Each thread judges by what it has seen itself.
    options.concurrency = 1;
    let proxy = options.start().await?;
    let believed = format!("steered worker={} rank=0 cached_blocks=32", workers[0]);
    proxy.wait_for_decision(&believed, &prompt, &[("x-usage-cached", "512")]).await?;
    for _ in 0..10 {
        let echo = send(&proxy, &prompt, "512").await?;
        ensure!(echo.decision.as_deref().is_some_and(|text| text.starts_with(&believed)), "{echo:?}");
    }
    // It begins to lie: nothing is cached. After four answers it is taken for cold.
    wait::until_ok(DEADLINE, "the liar to lose its credit", async || {
        let echo = send(&proxy, &prompt, "0").await?;
        let decision = echo.decision.as_deref().unwrap_or_default();
        ensure!(decision.starts_with("fallback reason=cold"), "{decision}");
        Ok(())
    })
    .await?;
    ensure!(proxy.envoy.log().contains(&format!("worker {} keeps having less cached", workers[0])));
    // After a while it is tried again, agrees, and is believed.
    let regained = format!("worker {} has what the index says again", workers[0]);
    wait::until_ok(DEADLINE, "it to be believed again", async || {
        send(&proxy, &prompt, "512").await?;
        ensure!(proxy.envoy.log().contains(&regained));
        Ok(())
    })
    .await?;
    let echo = send(&proxy, &prompt, "512").await?;
    ensure!(echo.decision.as_deref().is_some_and(|text| text.starts_with(&believed)), "{echo:?}");
    let counted = proxy.envoy.prometheus().await?;
    let predictions = |outcome| counted.sum("warmroute_predictions_total", &[("outcome", outcome)]);
    ensure!(predictions("over") == 4.0, "{} were too high", predictions("over"));
    ensure!(predictions("right") >= 13.0 && predictions("under") == 0.0);
    proxy.stop().await
}

#[tokio::test]
async fn predictions_of_honest_engines_come_true_over_conversations_streamed_and_not() -> Result<()> {
    let filter = json!({ "compare_every": 1, "recent_routes_ms": 0 });
    let stack = Stack::builder("honest").filter(filter).start().await?;
    stack.wait_until_steering().await?;
    let before = stack.envoy.prometheus().await?;
    let client = Client::http1(stack.url())?;
    for conversation in 0..4 {
        for turn in 1..=6 {
            let prompt = tokens(100 + conversation, turn * 160 + 7);
            let answer = if conversation % 2 == 0 {
                client.complete(&prompt, 1).await?
            } else {
                client.stream(&prompt, 1).await?
            };
            ensure!(answer.status.is_success(), "{answer:?}");
            // The next turn comes when the index has heard of this one.
            let list = prompt.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let known = format!(" cached_blocks={} ", turn * 10);
            wait::until_ok(DEADLINE, "the index to hear of a turn", async || {
                let probe = client.post("/generate").header("x-warmroute-tokens", &list).body("");
                let response = probe.send().await?;
                let decision = response.headers().get("x-warmroute-decision").context("no decision")?;
                ensure!(decision.to_str()?.contains(&known), "{decision:?}");
                Ok(())
            })
            .await?;
        }
    }
    let after = stack.envoy.prometheus().await?;
    let predictions = |outcome| {
        let labels = [("outcome", outcome), ("pool", "llama")];
        let count = |samples: &warmroute_e2e::Samples| samples.sum("warmroute_predictions_total", &labels);
        count(&after) - count(&before)
    };
    // The first turn of each conversation is cold and goes its own way; every other is compared.
    ensure!(predictions("right") == 20.0, "{} came true", predictions("right"));
    ensure!(predictions("over") == 0.0 && predictions("under") == 0.0);
    stack.stop().await
}
