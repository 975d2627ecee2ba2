//! `cargo xtask demo`: the same conversations, first through plain Envoy and then through warmroute.
//!
//! Each of the two ways gets a stack of its own with cold caches, so that neither finds what the other left behind.

pub(crate) mod drive;
pub(crate) mod figures;
mod ideal;
pub(crate) mod plan;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use warmroute_e2e::{Client, Stack, StackBuilder, envoy_binary, wait};

use self::drive::Outcome;
use self::figures::{Decisions, Figures};
use self::plan::Plan;
use self::report::Report;
use crate::build;

/// The engines, as real ones would be a hundred times over: a cache that holds the conversations of one engine's share,
/// but not everybody's, and 10,000 tokens of prefill a second.
const ENGINES: usize = 4;
const BLOCK_SIZE: u32 = 16;
const ENGINE_FLAGS: [&str; 4] = ["--num-blocks", "1536", "--prefill-us-per-token", "100"];

/// A prompt that was computed is known everywhere long before.
const KEEP_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct Options {
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave everything running afterwards, until Ctrl-C
    #[arg(long)]
    keep: bool,
}

/// Builds, starts, measures, reports. Nothing is left running, however it ends.
pub(crate) fn run(options: &Options) -> Result<()> {
    build::all()?;
    eprintln!("Envoy: {}", envoy_binary::path()?.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            biased; // with `--keep`, Ctrl-C is for the demo
            done = demo(options) => done,
            // What was started ends with the future that holds it.
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

async fn demo(options: &Options) -> Result<()> {
    let plan = Plan::new();
    let (baseline, baseline_outcomes) = baseline(&plan).await?;
    let (stack, warmroute, decisions, outcomes) = warmroute(&plan).await?;
    let report = Report {
        ideal_cached_share: ideal::cached_share(&baseline_outcomes, BLOCK_SIZE),
        errors: baseline_outcomes.iter().chain(&outcomes).filter(|outcome| !outcome.succeeded()).count(),
        baseline,
        warmroute,
        decisions,
    };
    println!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.to_json()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.keep {
        warm_the_invited_prompt(&stack).await?;
        println!("{}", report::invitation(&stack));
        tokio::signal::ctrl_c().await.context("cannot listen for Ctrl-C")?;
        return stack.discard();
    }
    stack.stop().await
}

/// Has the prompt of the invitation computed, so that whoever sends it sees it steered.
async fn warm_the_invited_prompt(stack: &Stack) -> Result<()> {
    let (client, prompt) = (Client::http1(stack.url())?, (1..=report::INVITED_TOKENS).collect::<Vec<_>>());
    wait::until_ok(KEEP_DEADLINE, "the prompt to be steered", async || {
        let answer = client.complete(&prompt, 1).await?;
        ensure!(
            answer.decision().is_some_and(|decision| decision.starts_with("steered")),
            "{:?}",
            answer.decision()
        );
        Ok(())
    })
    .await
}

async fn baseline(plan: &Plan) -> Result<(Figures, Vec<Outcome>)> {
    let stack = start("demo-plain").await?;
    let outcomes = drive::through(&Client::http1(stack.plain_url())?, plan, Some("plain Envoy")).await?;
    let figures = Figures::of(&outcomes, stack.engines());
    stack.stop().await?;
    Ok((figures, outcomes))
}

async fn warmroute(plan: &Plan) -> Result<(Stack, Figures, Decisions, Vec<Outcome>)> {
    let stack = start("demo").await?;
    stack.wait_until_steering().await?;
    let before = Decisions::of(&stack.envoy.prometheus().await?);
    let outcomes = drive::through(&Client::http1(stack.url())?, plan, Some("warmroute")).await?;
    let decisions = Decisions::of(&stack.envoy.prometheus().await?).since(&before);
    let figures = Figures::of(&outcomes, stack.engines());
    Ok((stack, figures, decisions, outcomes))
}

async fn start(name: &str) -> Result<Stack> {
    stack(name).start().await
}

/// The demo's stack.
pub(crate) fn stack(name: &str) -> StackBuilder {
    Stack::builder(name).engines(ENGINES).block_size(BLOCK_SIZE).engine_flags(ENGINE_FLAGS)
}
