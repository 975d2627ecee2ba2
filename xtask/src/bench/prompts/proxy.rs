//! What text costs at the proxy: chats of some 8,192 tokens at a fixed rate through Envoy, whose filter asks the collector.
//!
//! Two kinds of chats: next turns of conversations whose turns before are remembered, and chats that nobody has seen. Each is
//! sent with warmroute and without, at the same rate. Client, upstream, Envoy and collector share the machine.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use warmroute_e2e::bootstrap::POOL;
use warmroute_e2e::engine::Endpoints;
use warmroute_e2e::workspace::ScratchDir;
use warmroute_e2e::{Client, Collector, Dice, ProxyOptions, Upstream, collector, ports, wait};

use crate::demo::figures::percentile_ms;

/// Chats a second.
const RATE: u32 = 50;

/// The bytes of 8,192 tokens, roughly.
const BODY_BYTES: usize = 37_000;

/// Conversations that take turns.
const CONVERSATIONS: usize = 100;

const DEADLINE: Duration = Duration::from_secs(60);

const PATH: &str = "/v1/chat/completions";

const WORDS: [&str; 24] = [
    "the", "request", "goes", "to", "worker", "whose", "cache", "holds", "most", "of", "its", "prompt",
    "because", "prefill", "costs", "42.5", "ms", "naïve", "Größe", "(see", "above);", "function", "return",
    "tokens",
];

/// What became of the requests of one run.
#[derive(Default)]
struct Outcome {
    latencies: Vec<Duration>,
    waits: Vec<Duration>,
    fallbacks: usize,
}

/// Starts, measures, reports.
pub(super) fn run(model: &Path, seconds: u32) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(model, seconds))
}

async fn measure(model: &Path, seconds: u32) -> Result<Value> {
    let dir = ScratchDir::new("bench-prompts")?;
    let upstream = Upstream::start().await?;
    // A worker that has nothing and tells nothing: the choice goes by load.
    let silent = || Ok::<_, anyhow::Error>(format!("tcp://{}", ports::free()?));
    let worker = Endpoints { address: upstream.address(), events: silent()?, replay: silent()? };
    let mut config = collector::config(16, &[worker]);
    let pool = config.pointer_mut("/pools/0").and_then(Value::as_object_mut).context("no pool")?;
    pool.insert("prompts".to_owned(), json!({ "model": model }));
    pool.insert("base_models".to_owned(), json!([]));
    config.as_object_mut().context("no configuration")?.insert("ready_timeout_ms".to_owned(), json!(500));
    let collector = Collector::start(dir.path(), config).await?;
    let workers = [upstream.address()];
    let proxy = ProxyOptions::new("bench-prompts-envoy", &workers, collector.address())?.start().await?;
    let (through, plain) = (proxy.client()?, Client::http1(proxy.envoy.plain_url())?);

    let mut dice = Dice::new(1);
    let conversations: Vec<Vec<Value>> = (0..CONVERSATIONS).map(|_| conversation(&mut dice)).collect();
    let first = body(conversations.first().context("no conversations")?);
    wait::until_ok(DEADLINE, "chats to be steered", async || {
        let (_, decision) = send(&through, first.clone()).await?;
        ensure!(decision.starts_with("steered"), "{decision}");
        Ok(())
    })
    .await?;
    let (tokens, whole) = whole_tokenization(&collector, &mut dice).await?;

    // Each conversation has been seen before its next turns come.
    for known in &conversations {
        ask(&collector, body(known)).await?;
    }
    let count = (RATE * seconds) as usize;
    let turns: Vec<String> = conversations
        .iter()
        .cycle()
        .take(count)
        .map(|known| {
            let mut turn = known.clone();
            turn.push(json!({ "role": "user", "content": words(&mut dice, 40) }));
            body(&turn)
        })
        .collect();
    let new: Vec<String> = (0..count).map(|_| body(&conversation(&mut dice))).collect();
    // The shipped configuration's.
    let budget_ms = 30 + BODY_BYTES / 1024 / 4;
    let mut figures = vec![
        ("tokens".to_owned(), json!(tokens)),
        ("whole_tokenization_ms".to_owned(), json!(whole)),
        ("budget_ms".to_owned(), json!(budget_ms)),
    ];
    for (name, bodies) in [("next_turns", turns), ("new_chats", new)] {
        // Plain first: what it is sent, nobody tokenizes.
        let without = load(&plain, &bodies).await?;
        let with = load(&through, &bodies).await?;
        let told = json!({
            "plain_latency_ms": percentiles(without.latencies),
            "latency_ms": percentiles(with.latencies),
            "held_for_the_answer_ms": percentiles(with.waits),
            "fallbacks": with.fallbacks,
            "requests": count,
        });
        figures.push((name.to_owned(), told));
    }
    proxy.stop().await?;
    drop(collector);
    dir.remove()?;
    Ok(Value::Object(figures.into_iter().collect()))
}

/// Sends bodies at the rate, whatever becomes of those before.
async fn load(client: &Client, bodies: &[String]) -> Result<Outcome> {
    let mut clock = tokio::time::interval(Duration::from_secs(1) / RATE);
    let mut under_way = JoinSet::new();
    for body in bodies {
        clock.tick().await;
        let (client, body) = (client.clone(), body.clone());
        under_way.spawn(async move { send(&client, body).await });
    }
    let mut outcome = Outcome::default();
    while let Some(sent) = under_way.join_next().await {
        let (latency, decision) = sent??;
        outcome.latencies.push(latency);
        if let Some((_, waited_us)) = decision.split_once("waited_us=") {
            outcome.waits.push(Duration::from_micros(waited_us.parse()?));
        }
        outcome.fallbacks += usize::from(decision.starts_with("fallback"));
    }
    Ok(outcome)
}

/// Sends one body. How long the answer took, and what the filter decided.
async fn send(client: &Client, body: String) -> Result<(Duration, String)> {
    let begun = Instant::now();
    let request = client.post(PATH).header("content-type", "application/json").body(body);
    let response = request.send().await?.error_for_status()?;
    let decision = response.headers().get("x-warmroute-decision");
    let decision = decision.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    response.bytes().await?;
    Ok((begun.elapsed(), decision))
}

/// The tokens of a chat that nobody has seen, and how long the collector takes for one by itself, in milliseconds.
async fn whole_tokenization(collector: &Collector, dice: &mut Dice) -> Result<(u64, f64)> {
    let (mut times, mut tokens) = (Vec::new(), 0);
    for _ in 0..21 {
        let body = body(&conversation(dice));
        let begun = Instant::now();
        tokens = ask(collector, body).await?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok((tokens, percentile_ms(&times, 50)))
}

/// Has the collector tokenize a body; how many tokens it has.
async fn ask(collector: &Collector, body: String) -> Result<u64> {
    let path = format!("/v1/prompt-blocks?pool={POOL}&path={PATH}");
    let answer = Client::http1(collector.url())?.post(&path).body(body).send().await?.error_for_status()?;
    answer.json::<Value>().await?.get("tokens").and_then(Value::as_u64).context("no tokens")
}

fn conversation(dice: &mut Dice) -> Vec<Value> {
    let (mut messages, mut bytes) = (Vec::new(), 0);
    while bytes < BODY_BYTES || messages.len() % 2 == 1 {
        let role = if messages.len() % 2 == 0 { "user" } else { "assistant" };
        let content = words(dice, 150);
        bytes += content.len();
        messages.push(json!({ "role": role, "content": content }));
    }
    messages
}

fn words(dice: &mut Dice, count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        text.push_str(dice.pick(&WORDS).copied().unwrap_or_default());
        text.push(if number % 17 == 16 { '\n' } else { ' ' });
    }
    text
}

fn body(messages: &[Value]) -> String {
    json!({ "model": "sim", "messages": messages, "max_tokens": 1 }).to_string()
}

fn percentiles(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    json!({
        "p50": percentile_ms(&times, 50), "p99": percentile_ms(&times, 99), "max": percentile_ms(&times, 100),
    })
}
