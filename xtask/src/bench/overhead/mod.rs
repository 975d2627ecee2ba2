//! What a request costs on its way: CPU time, latency and the highest rate, beside plain Envoy, beside a filter that does
//! nothing, beside an external processor that only answers, and beside the routers of others.
//!
//! All are given the same requests by the same client and pass them to the same upstream; they take turns (A B C A B C ...)
//! for several rounds, so that whatever else the machine does strikes all of them, and what is told is the median of the
//! rounds. Client and upstream run in this process and share the machine with what is measured, so that latency and the
//! highest rate are those of the whole; the CPU time is that of the processes on the path alone, and the main figure.

mod build;
mod chart;
pub(super) mod cpu;
mod envoys;
mod http1;
mod load;
mod peers;
pub(super) mod phases;
mod place;
mod prompts;
mod report;
mod subject;
mod upstream;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use warmroute_e2e::scripted_feed::Reply;
use warmroute_e2e::{ScriptedFeed, envoy_binary, wait};

use place::{Place, Running, Surroundings};
use report::{Cell, Report};
use subject::{BASELINE, SUBJECTS, Subject};
use upstream::Upstreams;

/// How long a place may take until it sends each prompt where it is cached.
const WARM_DEADLINE: Duration = Duration::from_secs(60);

/// The lengths of the prompts in tokens, and the rate at which they are sent, a second: a third of what the machine can do,
/// or less.
const LENGTHS: [(usize, u32); 4] = [(512, 400), (8192, 200), (32_768, 80), (100_000, 30)];

#[derive(Args)]
pub(crate) struct Options {
    /// Two short rounds in place of five
    #[arg(long)]
    quick: bool,
    /// Measure these subjects alone; `envoy` always is. May be given more than once
    #[arg(long, value_name = "SUBJECT", value_parser = SUBJECTS.map(|subject| subject.name))]
    only: Vec<String>,
    /// Measure prompts of this length alone
    #[arg(long, value_name = "N", value_parser = ["512", "8192", "32768", "100000"])]
    tokens: Option<String>,
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write charts into DIR, too
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
}

/// How long to measure.
#[derive(Debug, Clone, Copy)]
struct Effort {
    rounds: usize,
    at_rate: Duration,
    highest: Duration,
}

/// Builds, starts, measures, reports.
pub(crate) fn run(options: &Options) -> Result<()> {
    let built = build::all()?;
    eprintln!("Envoy: {}", envoy_binary::path()?.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure(options, &built))?;
    println!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.to_json()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(dir) = &options.charts {
        chart::write(&report, dir)?;
    }
    Ok(())
}

async fn measure(options: &Options, built: &build::Built) -> Result<Report> {
    let chosen = options.tokens.as_ref();
    let lengths: Vec<(usize, u32)> = LENGTHS
        .into_iter()
        .filter(|(tokens, _)| chosen.is_none_or(|only| *only == tokens.to_string()))
        .collect();
    let tokens: Vec<usize> = lengths.iter().map(|(tokens, _)| *tokens).collect();
    let (upstreams, feed) = stand(&tokens).await?;
    let around =
        Surroundings { built, workers: &upstreams.addresses, feed: feed.address(), lengths: &tokens };
    let wanted = |subject: &&Subject| {
        let all = options.only.is_empty() || subject.name == BASELINE;
        all || options.only.iter().any(|name| name == subject.name)
    };
    let subjects: Vec<&Subject> = SUBJECTS.iter().filter(wanted).collect();
    let mut report = Report::default();
    let places = start(&subjects, &around, &mut report).await;
    for (tokens, rate) in lengths {
        measure_length(options.effort(), &subjects, &places, tokens, rate, &mut report).await;
    }
    for (_, running) in places {
        running.stop().await?;
    }
    Ok(report)
}

/// The upstream, and a collector whose index has the prompts of these lengths.
async fn stand(lengths: &[usize]) -> Result<(Upstreams, ScriptedFeed)> {
    let upstreams = Upstreams::start(prompts::WORKERS).await?;
    let index = prompts::index(lengths, &upstreams.addresses)?;
    let (all, unchanged) = (index.all(), index.unchanged());
    let feed = ScriptedFeed::start(move |request| {
        let known = index.is_known_to(&request);
        if known { Reply::Unchanged(unchanged.clone()) } else { Reply::Bytes(all.clone()) }
    });
    Ok((upstreams, feed.await?))
}

/// Starts what the subjects need. What does not start is told in the report.
async fn start(
    subjects: &[&Subject],
    around: &Surroundings<'_>,
    report: &mut Report,
) -> BTreeMap<Place, Running> {
    let mut places = BTreeMap::new();
    for subject in subjects {
        if places.contains_key(&subject.place) {
            continue;
        }
        eprintln!("starting {}", subject.name);
        match subject.place.start(around).await {
            Ok(running) => {
                places.insert(subject.place, running);
            }
            Err(error) => report.not_run(subject.name, None, &error),
        }
    }
    places
}

async fn measure_length(
    effort: Effort,
    subjects: &[&Subject],
    places: &BTreeMap<Place, Running>,
    tokens: usize,
    rate: u32,
    report: &mut Report,
) {
    let mut turns = Vec::new();
    for subject in subjects {
        let Some(running) = places.get(&subject.place) else { continue };
        let target = subject.target(running, tokens);
        match warm_up(subject, &target).await {
            Ok(()) => turns.push((*subject, running, target)),
            Err(error) => report.not_run(subject.name, Some(tokens), &error),
        }
    }
    for round in 0..effort.rounds {
        eprintln!("{tokens} tokens, round {} of {}", round + 1, effort.rounds);
        for (subject, running, target) in &turns {
            match measure_once(effort, running, target, rate).await {
                Ok(cell) => report.add(subject.name, tokens, round, cell),
                Err(error) => report.not_run(subject.name, Some(tokens), &error),
            }
        }
    }
}

/// Sends each prompt until it goes where it is cached, and then some more, so that connections are open and code is hot.
async fn warm_up(subject: &Subject, target: &load::Target) -> Result<()> {
    for number in 0..target.requests.len() {
        wait::until_ok(WARM_DEADLINE, "prompts to go where they are cached", async || {
            let held = target.once(number).await?;
            ensure!(held || !subject.must_hit(), "another worker served");
            Ok(())
        })
        .await?;
    }
    load::highest_rate(target, Duration::from_millis(500)).await.map(drop)
}

async fn measure_once(effort: Effort, running: &Running, target: &load::Target, rate: u32) -> Result<Cell> {
    let before = cpu::used_ns(&running.pids)?;
    let served = load::at_rate(target, rate, effort.at_rate).await?;
    let used = cpu::used_ns(&running.pids)?.saturating_sub(before);
    let highest = load::highest_rate(target, effort.highest).await?;
    Ok(Cell::new(&served, used, highest))
}

// === impl Options ===

impl Options {
    fn effort(&self) -> Effort {
        let (rounds, at_rate, highest) = if self.quick { (2, 1500, 700) } else { (5, 2500, 1200) };
        Effort { rounds, at_rate: Duration::from_millis(at_rate), highest: Duration::from_millis(highest) }
    }
}
