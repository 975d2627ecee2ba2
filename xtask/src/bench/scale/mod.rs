//! How warmroute bears size: a fleet of hundreds of workers, and up to millions of published blocks.
//!
//! For each size, with a collector and an Envoy of its own:
//!
//! 1. the engines tell of so many blocks, as fast as the collector applies them: events applied a second, end to end;
//! 2. memory of the collector and of Envoy, with what they took before that taken off;
//! 3. a second Envoy starts: how long until it knows the whole index, and what the copy of it comes to;
//! 4. further blocks at a steady rate: from an event to a lookup in Envoy that sees it, and bytes of the feed per event.
//!
//! The engines' sockets, the load and the looks run in this process, beside what is measured.

mod fleet;
mod report;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use warmroute_e2e::{Client, Envoy, Stack, envoy_binary, tokens, wait};

use self::fleet::{BLOCK_TOKENS, Fleet};
use self::report::{Freshness, Report, Row};
use super::look;
use super::overhead::cpu;
use crate::build;
use crate::soak::memory::resident_kib;

/// Tokens of a prompt that is looked for.
const LOOK_TOKENS: usize = 4 * BLOCK_TOKENS;

/// So that the prompts that are looked for are none of the others.
const LOOK_SEED: u64 = 1 << 40;

/// Pairs that may have been told of and not be applied: far less than what any queue on the way holds.
const MOST_UNDER_WAY: u64 = 200_000;

/// Between two looks at how far the collector is. Its metrics of hundreds of workers are long.
const BETWEEN_COUNTS: Duration = Duration::from_millis(100);

/// Without any progress for so long, something is lost.
const STALLED: Duration = Duration::from_secs(60);

/// Until an event is seen, or a new Envoy has its copy.
const DEADLINE: Duration = Duration::from_secs(120);

#[derive(Args)]
pub(crate) struct Options {
    /// Workers
    #[arg(long, default_value_t = 512, value_name = "N")]
    workers: usize,
    /// Published pairs of worker and block. May be given more than once
    #[arg(long, value_name = "N", default_values_t = [100_000, 1_000_000, 10_000_000])]
    blocks: Vec<u64>,
    /// Blocks told of a second in the steady part
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    rate: u64,
    /// How long the steady part takes, in seconds
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    seconds: u64,
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Builds, starts, measures, reports.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.workers > 0 && options.workers <= 4096, "--workers is a number from 1 to 4096");
    build::all()?;
    eprintln!("Envoy: {}", envoy_binary::path()?.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = Report::default();
    for blocks in &options.blocks {
        eprintln!("{} workers, {blocks} blocks", options.workers);
        report.rows.push(runtime.block_on(measure(options, *blocks))?);
    }
    println!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.to_json()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

async fn measure(options: &Options, blocks: u64) -> Result<Row> {
    let mut fleet = Fleet::start(options.workers).await?;
    let mut stack = stack(&fleet, blocks).await?;
    // The first event shows that the whole way is open.
    let first = tokens(LOOK_SEED, LOOK_TOKENS);
    let holder = fleet.compute_here(0, &first).context("there is no worker")?;
    look_until(&stack.envoy, &first, &holder.to_string()).await?;
    let collector = stack.collector.process_mut().id();
    let before = Resident::of(&mut stack)?;

    let (begun, used) = (Instant::now(), cpu::used_ns(&[collector])?);
    fill(&mut fleet, &mut stack, blocks).await?;
    let (filled_in, cpu_ns) = (begun.elapsed(), cpu::used_ns(&[collector])? - used);
    let last = tokens(LOOK_SEED + 1, LOOK_TOKENS);
    let holder = fleet.compute_here(options.workers / 2, &last).context("there is no worker")?.to_string();
    look_until(&stack.envoy, &last, &holder).await?;
    let after = Resident::of(&mut stack)?;
    let pairs = fleet.pairs;

    let told = feed_bytes(&stack).await?;
    let begun = Instant::now();
    let mut second = stack.start_another_envoy("second").await?;
    look_until(&second, &last, &holder).await?;
    let copied_in = begun.elapsed();
    let copy_bytes = feed_bytes(&stack).await? - told;
    second.stop().await?;

    let freshness = steady(options, &mut fleet, &stack).await?;
    stack.stop().await?;
    fleet.stop().await;
    let per_pair = |before: u64, after: u64| (after.saturating_sub(before) * 1024) as f64 / pairs as f64;
    Ok(Row {
        workers: options.workers,
        pairs,
        applied_per_s: pairs as f64 / filled_in.as_secs_f64(),
        collector_cpu_ns: cpu_ns as f64 / pairs as f64,
        collector_mib: after.collector as f64 / 1024.0,
        collector_bytes: per_pair(before.collector, after.collector),
        envoy_mib: after.envoy as f64 / 1024.0,
        envoy_bytes: per_pair(before.envoy, after.envoy),
        copied_in,
        copy_bytes,
        freshness,
    })
}

/// A collector that hears the fleet, and an Envoy.
async fn stack(fleet: &Fleet, blocks: u64) -> Result<Stack> {
    Stack::builder("bench-scale")
        .engines(0)
        .served_by(fleet.endpoints())
        .filter(look::filter(&[]))
        .edit_bootstrap(look::answer)
        .edit_collector(move |config| {
            let pool = config.pointer_mut("/pools/0").and_then(Value::as_object_mut);
            let pool = pool.context("the collector's configuration has no pool")?;
            pool.insert("expected_blocks".to_owned(), json!(blocks));
            // Nobody serves at the workers' addresses.
            pool.insert("health_interval_ms".to_owned(), json!(0));
            Ok(())
        })
        .edit_bootstrap(|bootstrap| {
            for cluster in ["workers", "workers-plain"] {
                let cluster = bootstrap.cluster(cluster)?.as_object_mut();
                cluster.context("a cluster is no object")?.remove("health_checks");
            }
            Ok(())
        })
        .start()
        .await
}

/// Resident memory, in KiB.
struct Resident {
    collector: u64,
    envoy: u64,
}

impl Resident {
    fn of(stack: &mut Stack) -> Result<Self> {
        let of = |id| resident_kib(id).context("a process has ended");
        Ok(Self {
            collector: of(stack.collector.process_mut().id())?,
            envoy: of(stack.envoy.process_mut().id())?,
        })
    }
}

/// Lets the fleet tell of blocks until the collector has so many, never far ahead of it.
async fn fill(fleet: &mut Fleet, stack: &mut Stack, blocks: u64) -> Result<()> {
    let (mut applied, mut progress) = (0, Instant::now());
    while applied < fleet.pairs || fleet.pairs < blocks {
        while fleet.pairs < blocks && fleet.pairs - applied < MOST_UNDER_WAY {
            fleet.compute_next();
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(BETWEEN_COUNTS).await;
        let metrics = stack.collector.metrics().await?;
        let now = metrics.sum("warmroute_collector_holdings", &[]) as u64;
        if now != applied {
            progress = Instant::now();
        }
        applied = now;
        ensure!(
            progress.elapsed() < STALLED,
            "the collector has {applied} of {} blocks and goes on no more",
            fleet.pairs
        );
    }
    Ok(())
}

async fn feed_bytes(stack: &Stack) -> Result<u64> {
    Ok(stack.collector.metrics().await?.sum("warmroute_collector_feed_bytes_total", &[]) as u64)
}

/// Tells of blocks at a steady rate, and again and again of a prompt that is looked for at once.
async fn steady(options: &Options, fleet: &mut Fleet, stack: &Stack) -> Result<Freshness> {
    let client = Client::http1(stack.url())?;
    let (feed, events, pairs) = (feed_bytes(stack).await?, fleet.events, fleet.pairs);
    let begun = Instant::now();
    let end = Duration::from_secs(options.seconds);
    let mut times = Vec::new();
    let mut looked_for: Option<(String, String, Instant)> = None;
    while begun.elapsed() < end || looked_for.is_some() {
        let due = (begun.elapsed().min(end).as_secs_f64() * options.rate as f64) as u64;
        while fleet.pairs - pairs < due {
            fleet.compute_next();
        }
        let (list, told, since) = looked_for.take().map_or_else(
            || {
                let number = times.len() as u64;
                let prompt = tokens(LOOK_SEED + 2 + number, LOOK_TOKENS);
                let worker = (number as usize * 7) % options.workers;
                let since = Instant::now();
                let holder = fleet.compute_here(worker, &prompt).context("there is no worker")?;
                anyhow::Ok((look::list(&prompt), holder.to_string(), since))
            },
            anyhow::Ok,
        )?;
        if knows(&client, &list, &told).await? {
            times.push(since.elapsed());
        } else {
            ensure!(since.elapsed() < DEADLINE, "an event was never seen");
            looked_for = Some((list, told, since));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let took = begun.elapsed();
    let (events, pairs) = (fleet.events - events, fleet.pairs - pairs);
    Ok(Freshness::new(times, took, pairs, (feed_bytes(stack).await? - feed) as f64 / events as f64))
}

/// Whether the filter says that this worker holds the prompt.
async fn knows(client: &Client, list: &str, holder: &str) -> Result<bool> {
    let decision = look::decision(client, list).await?;
    Ok(decision.contains(&format!(" worker={holder} ")) && !decision.contains(" cached_blocks=0 "))
}

async fn look_until(envoy: &Envoy, prompt: &[u32], holder: &str) -> Result<()> {
    let (client, list) = (Client::http1(envoy.url())?, look::list(prompt));
    wait::until_ok(DEADLINE, "an Envoy to know a block", async || {
        ensure!(knows(&client, &list, holder).await?, "it does not");
        Ok(())
    })
    .await
}
