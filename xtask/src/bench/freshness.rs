//! How long it takes from an engine's event until a lookup in Envoy sees it.
//!
//! While the demo's conversations run through warmroute, one more engine computes prompts that nobody else has. The clock
//! starts before a prompt is sent to it and stops when a request through Envoy is first told that this engine holds the
//! prompt's blocks. So each figure is an upper bound: it has in it the way of the prompt to the engine, and up to one
//! interval between two looks.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use warmroute_e2e::workspace::ScratchDir;
use warmroute_e2e::{Client, Engine, Stack, envoy_binary, tokens};

use super::look;
use crate::build;
use crate::demo::{self, drive, figures::percentile_ms, plan::Plan};

/// Blocks in a prompt: as many as a turn of a conversation adds.
const PROMPT_TOKENS: usize = 64;

/// An event that takes this long is lost.
const DEADLINE: Duration = Duration::from_secs(10);

/// So that the looks themselves do not load the machine that is measured.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// So that the prompts of the bench are none of the demo's.
const SEED: u64 = 1 << 40;

#[derive(Args)]
pub(crate) struct Options {
    /// Prompts to measure
    #[arg(long, default_value_t = 500)]
    events: usize,
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Builds, starts, measures, reports.
pub(crate) fn run(options: &Options) -> Result<()> {
    build::all()?;
    eprintln!("Envoy: {}", envoy_binary::path()?.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(options.events))?;
    println!("{figures:#}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{figures:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

async fn measure(events: usize) -> Result<Value> {
    let dir = ScratchDir::new("bench-freshness")?;
    let flags = ["--block-size", "16", "--base-ms", "0"].map(str::to_owned);
    let engine = Engine::start(dir.path(), "measured", &flags).await?;
    let worker = json!({ "address": engine.address(), "events": engine.events(), "replay": engine.replay() });
    let stack = demo::stack("bench-freshness")
        .filter(look::filter(&["/v1/completions"]))
        .edit_bootstrap(look::answer)
        .edit_collector(move |config| {
            let workers = config.pointer_mut("/pools/0/workers").and_then(Value::as_array_mut);
            workers.context("the collector's configuration has no workers")?.push(worker);
            Ok(())
        })
        .start()
        .await?;
    stack.wait_until_steering().await?;

    let load = tokio::spawn(background(stack.url()));
    let mut times = Vec::with_capacity(events);
    for number in 0..events {
        times.push(time_of_event(&stack, &engine, SEED + number as u64).await?);
    }
    ensure!(!load.is_finished(), "the load has stopped: {:?}", load.await);
    load.abort();
    times.sort_unstable();
    stack.stop().await?;
    drop(engine);
    dir.remove()?;
    let percentile = |percent| percentile_ms(&times, percent);
    Ok(json!({
        "events": events,
        "event_to_lookup_ms": {
            "p50": percentile(50), "p90": percentile(90), "p99": percentile(99), "max": percentile(100),
        },
    }))
}

/// The demo's conversations, over and over.
async fn background(url: String) -> Result<()> {
    let plan = Plan::new();
    loop {
        drive::through(&Client::http1(url.clone())?, &plan, None).await?;
    }
}

async fn time_of_event(stack: &Stack, engine: &Engine, seed: u64) -> Result<Duration> {
    let prompt = tokens(seed, PROMPT_TOKENS);
    let list = look::list(&prompt);
    let told = format!("worker={} ", engine.address());
    let (direct, through) = (Client::http1(engine.url())?, Client::http1(stack.url())?);
    let start = Instant::now();
    let computed = tokio::spawn(async move { direct.complete(&prompt, 1).await });
    let time = loop {
        let decision = look::decision(&through, &list).await?;
        if decision.contains(&told) {
            break start.elapsed();
        }
        ensure!(start.elapsed() < DEADLINE, "an event was never seen; the filter said {decision:?}");
        tokio::time::sleep(BETWEEN_LOOKS).await;
    };
    computed.await??;
    Ok(time)
}
