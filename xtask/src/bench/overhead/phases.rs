//! Where the filter's own time goes, in the real Envoy: `cargo xtask bench wasm`.
//!
//! The plugin is built with the feature `phase-times`, which reads the clock between the phases of a request and tells the
//! times as metrics, with the cost of a clock read, which is taken off here. What a request costs besides (calling into the
//! VM and out of it again, contexts, holding the body) is the host's: the CPU time above plain Envoy tells it, measured with
//! the plugin as it is shipped.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use super::place::{Place, Running, Surroundings};
use super::subject::{SUBJECTS, Subject};
use super::{LENGTHS, build, cpu, load, stand, warm_up};

const PHASES: [&str; 10] =
    ["headers", "body", "scan", "hash", "snapshot", "page", "choose", "steer", "account", "response"];

#[derive(Args)]
pub(crate) struct Options {
    /// Measure prompts of this length alone
    #[arg(long, value_name = "N", value_parser = ["512", "8192", "32768", "100000"])]
    tokens: Option<String>,
    /// How long to send requests of each kind, in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The phases of a request, in microseconds (medians), and what else it took.
struct Row {
    subject: &'static str,
    tokens: usize,
    phases_us: BTreeMap<&'static str, f64>,
    page_reads: f64,
    above_envoy_us: f64,
}

struct Report(Vec<Row>);

/// Builds, starts, measures, reports.
pub(crate) fn run(options: &Options) -> Result<()> {
    let built = build::ours()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure(options, &built))?;
    println!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.to_json()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

async fn measure(options: &Options, built: &build::Built) -> Result<Report> {
    let chosen = options.tokens.as_ref();
    let lengths =
        LENGTHS.into_iter().filter(|(tokens, _)| chosen.is_none_or(|only| *only == tokens.to_string()));
    let lengths: Vec<(usize, u32)> = lengths.collect();
    let tokens: Vec<usize> = lengths.iter().map(|(tokens, _)| *tokens).collect();
    let (upstreams, feed) = stand(&tokens).await?;
    let around =
        Surroundings { built, workers: &upstreams.addresses, feed: feed.address(), lengths: &tokens };
    let plain = Place::PlainEnvoy.start(&around).await?;
    let shipped = Place::Warmroute.start(&around).await?;
    let mut rows = Vec::new();
    let time = Duration::from_secs(options.seconds);
    for (tokens, rate) in lengths {
        for subject in SUBJECTS.iter().filter(|subject| subject.place == Place::Warmroute) {
            let baseline_us = cpu_us(subject, &plain, tokens, rate, time).await?;
            let shipped_us = cpu_us(subject, &shipped, tokens, rate, time).await?;
            // Anew for each, as its histograms are since it started.
            let timed = Place::TimedWarmroute.start(&around).await?;
            let target = subject.target(&timed, tokens);
            warm_up(subject, &target).await?;
            load::at_rate(&target, rate, time).await?;
            rows.push(Row::new(subject.name, tokens, &timed, shipped_us - baseline_us).await?);
            timed.stop().await?;
        }
    }
    for running in [plain, shipped] {
        running.stop().await?;
    }
    Ok(Report(rows))
}

/// CPU time of a request.
async fn cpu_us(
    subject: &Subject,
    running: &Running,
    tokens: usize,
    rate: u32,
    time: Duration,
) -> Result<f64> {
    let target = subject.target(running, tokens);
    load::highest_rate(&target, Duration::from_millis(300)).await?;
    let before = cpu::used_ns(&running.pids)?;
    let served = load::at_rate(&target, rate, time).await?;
    let used = cpu::used_ns(&running.pids)?.saturating_sub(before);
    Ok(used as f64 / 1000.0 / served.latencies.len().max(1) as f64)
}

// === impl Row ===

impl Row {
    async fn new(subject: &'static str, tokens: usize, timed: &Running, above_envoy_us: f64) -> Result<Self> {
        let counted = timed.envoy()?.prometheus().await?;
        let medians = timed.envoy()?.medians("warmroute_phase_").await?;
        let requests = counted.sum("warmroute_requests_total", &[]).max(1.0);
        let clock_ns = counted.sum("warmroute_clock_read_ns", &[]);
        let of = |phase: &'static str| {
            let median_ns = medians.get(&format!("wasmcustom.warmroute_phase_{phase}_ns")).copied();
            let clocks_ns = counted.sum(&format!("warmroute_phase_{phase}_laps"), &[]) / requests * clock_ns;
            (phase, (median_ns.unwrap_or_default() - clocks_ns).max(0.0) / 1000.0)
        };
        let page_reads = counted.sum("warmroute_page_reads_total", &[]) / requests;
        Ok(Self { subject, tokens, phases_us: PHASES.map(of).into(), page_reads, above_envoy_us })
    }

    fn sum_us(&self) -> f64 {
        self.phases_us.values().sum()
    }
}

// === impl Report ===

impl Report {
    fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "subject": row.subject,
                "tokens": row.tokens,
                "phases_us": row.phases_us,
                "sum_us": row.sum_us(),
                "page_reads": row.page_reads,
                "cpu_us_above_envoy": row.above_envoy_us,
            })
        };
        json!({ "rows": self.0.iter().map(row).collect::<Vec<_>>() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.0 {
            let sum = row.sum_us();
            writeln!(f, "\n{}, {} tokens", row.subject, row.tokens)?;
            for phase in PHASES {
                let us = row.phases_us.get(phase).copied().unwrap_or_default();
                let share = if sum > 0.0 { us / sum * 100.0 } else { 0.0 };
                writeln!(f, "  {phase:<12}{us:>9.1} us{share:>7.1}%")?;
            }
            writeln!(f, "  {:<12}{sum:>9.1} us   with {:.1} page reads", "the filter", row.page_reads)?;
            writeln!(f, "  {:<12}{:>9.1} us   CPU time above plain Envoy", "in whole", row.above_envoy_us)?;
        }
        Ok(())
    }
}
