//! Bursts: what was just routed counts as cached before any event has come, and what nobody has is spread by load.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use warmroute_e2e::{Answer, Client, Stack, StackBuilder, tokens};

/// Sends prompts, `at_once` of them at the same time; returns the answers.
async fn send_all(
    stack: &Stack,
    prompts: Vec<Vec<u32>>,
    at_once: usize,
    max_tokens: u32,
) -> Result<Vec<Answer>> {
    let client = Client::http1(stack.url())?;
    let mut prompts = prompts.into_iter();
    let (mut running, mut answers) = (JoinSet::new(), Vec::new());
    loop {
        while running.len() < at_once
            && let Some(prompt) = prompts.next()
        {
            let client = client.clone();
            running.spawn(async move { client.complete(&prompt, max_tokens).await });
        }
        let Some(answer) = running.join_next().await else { return Ok(answers) };
        let answer = answer??;
        ensure!(answer.status.is_success(), "{answer:?}");
        answers.push(answer);
    }
}

/// How many answers each engine gave.
fn by_engine(answers: &[Answer]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for engine in answers.iter().filter_map(Answer::engine) {
        *counts.entry(engine.to_owned()).or_default() += 1;
    }
    counts
}

fn most_over_mean(counts: &BTreeMap<String, usize>, engines: usize) -> f64 {
    let sum: usize = counts.values().sum();
    counts.values().copied().max().unwrap_or(0) as f64 * engines as f64 / sum.max(1) as f64
}

/// Prompts that share their first tokens, and then have some of their own.
fn sharing(prefix: &[u32], count: u64, own_tokens: usize) -> Vec<Vec<u32>> {
    (0..count).map(|own| [prefix, &tokens(1_000 + own, own_tokens)].concat()).collect()
}

/// The index is there, and what made sure of it is long over.
async fn ready(builder: StackBuilder) -> Result<Stack> {
    let stack = builder.start().await?;
    stack.wait_until_steering().await?;
    Ok(stack)
}

/// What became of a burst.
struct Burst {
    /// Answers by engine.
    counts: BTreeMap<String, usize>,
    /// Requests that went by load alone, as nothing of them was cached or on its way where they went.
    cold: f64,
}

/// A burst of 64 prompts that share 4,000 new tokens, and have some of their own.
async fn burst(name: &str, policy: Value, own_tokens: usize) -> Result<Burst> {
    let pools = json!([{ "name": "llama", "clusters": ["workers"], "policy": policy }]);
    let stack = ready(Stack::builder(name).filter(json!({ "pools": pools }))).await?;
    let cold = async || {
        let labels = [("outcome", "steered"), ("reason", "cold")];
        anyhow::Ok(stack.envoy.prometheus().await?.sum("warmroute_requests_total", &labels))
    };
    let before = cold().await?;
    let answers = send_all(&stack, sharing(&tokens(7, 4_000), 64, own_tokens), 64, 8).await?;
    let cold = cold().await? - before;
    stack.stop().await?;
    Ok(Burst { counts: by_engine(&answers), cold })
}

#[tokio::test]
async fn a_burst_with_one_new_prefix_stays_together_while_capacity_allows() -> Result<()> {
    let Burst { counts, cold } = burst("burst-together", json!({ "name": "default" }), 16).await?;
    ensure!(counts.len() <= 2, "{counts:?}");
    // Both threads may meet the prefix for the first time at once.
    ensure!((1.0..=2.0).contains(&cold), "{cold} of 64 found nothing");
    Ok(())
}

#[tokio::test]
async fn a_burst_with_one_new_prefix_spills_over_where_capacity_does_not_allow() -> Result<()> {
    // Half a prefix of their own each: to wait for 64 of them takes longer than to compute the prefix on all four.
    let Burst { counts, cold } = burst("burst-spills", json!({ "name": "default" }), 2_000).await?;
    ensure!(counts.len() == 4, "{counts:?}");
    // Who spills over computes the prefix once more, and the others follow there.
    ensure!(cold <= 8.0, "{cold} of 64 found nothing");
    Ok(())
}

#[tokio::test]
async fn a_sticky_burst_spills_over_at_its_bound() -> Result<()> {
    let policy = json!({ "name": "sticky", "most_surplus_tokens": 4_400 });
    let Burst { counts, cold } = burst("burst-sticky", policy, 32).await?;
    ensure!(counts.len() >= 3, "{counts:?}");
    ensure!(cold <= 8.0, "{cold} of 64 found nothing");
    Ok(())
}

#[tokio::test]
async fn a_hot_system_prompt_at_95_percent_load_is_shared_by_all() -> Result<()> {
    let stack = ready(Stack::builder("hot-prompt")).await?;
    // 61 of the 64 places of four engines.
    let answers = send_all(&stack, sharing(&tokens(7, 2_000), 600, 200), 61, 16).await?;
    let counts = by_engine(&answers);
    ensure!(most_over_mean(&counts, 4) < 1.5, "{counts:?}");
    let cached: u64 = answers.iter().map(|answer| answer.usage.cached_tokens).sum();
    ensure!(cached as f64 >= 0.8 * 600.0 * 2_000.0, "only {cached} tokens were cached");
    stack.stop().await
}

#[tokio::test]
async fn a_thousand_independent_prompts_are_spread_evenly() -> Result<()> {
    let stack = ready(Stack::builder("independent")).await?;
    let prompts = (0..1_000).map(|seed| tokens(50_000 + seed, 320)).collect();
    let answers = send_all(&stack, prompts, 32, 4).await?;
    let counts = by_engine(&answers);
    ensure!(most_over_mean(&counts, 4) < 1.3, "{counts:?}");
    let counted = stack.envoy.prometheus().await?;
    let cold = counted.sum("warmroute_requests_total", &[("outcome", "steered"), ("reason", "cold")]);
    ensure!(cold >= 1_000.0, "{cold} were steered by load");
    stack.stop().await
}
