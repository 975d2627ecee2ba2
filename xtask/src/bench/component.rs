//! How long a selection takes through the component: 64 workers of 2,000 blocks each, a prompt of 8,192 tokens, from Rust
//! and from Python. Beside it, in the same process as the latter and taking turns with it, `SelectionService.select` of
//! NVIDIA Dynamo's `ai-dynamo-runtime`, which this command alone installs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Map, Value, json};
use warmroute_e2e::venv::Venv;
use warmroute_e2e::workspace;

use crate::{component, python, run};

/// The peer, and what both subjects need. One event format of vLLM's is how the peer's index is filled.
const NEEDED: [&str; 4] = ["ai-dynamo-runtime==1.6.1", "msgpack==1.2.4", "pyzmq==27.3.0", "wasmtime==50.0.1"];

/// Why a subject could not be measured stands under this name.
const FAILED: &str = "failed";

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds that count; one before them does not
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Builds, installs, measures, reports.
pub(crate) fn run(options: &Options) -> Result<()> {
    component::build()?;
    let venv = Venv::get("python/bench", |venv| venv.install(NEEDED))?;
    python::install(&venv)?;

    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut failed = Map::new();
    for round in 0..=options.rounds {
        for figures in [from_rust()?, from_python(&venv)?] {
            for (name, value) in figures {
                match value {
                    Value::Object(reasons) if name == FAILED => failed.extend(reasons),
                    value if round > 0 => times.entry(name).or_default().extend(value.as_f64()),
                    _ => {}
                }
            }
        }
        eprintln!("round {round} of {}", options.rounds);
    }
    let medians: BTreeMap<_, _> =
        times.into_iter().filter_map(|(name, times)| Some((name, median(times)?))).collect();

    println!("{:<28} median of a selection", "subject");
    for (name, median_ms) in &medians {
        println!("{name:<28} {median_ms:.3} ms");
    }
    for (name, reason) in &failed {
        println!("{name:<28} cannot be run: {}", reason.as_str().unwrap_or("it does not say why"));
    }
    if let Some(path) = &options.json {
        let figures = json!({"rounds": options.rounds, "median_ms": medians, FAILED: failed});
        std::fs::write(path, format!("{figures:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn from_rust() -> Result<Map<String, Value>> {
    // As the tests are built, which spares compiling wasmtime once more: the component itself is compiled by wasmtime and as
    // fast as ever, only the crossing is slower than in a host that is optimized.
    let mut bench =
        run::cargo(&["bench", "--quiet", "--locked", "--profile", "dev", "--bench", "select_worker"])?;
    let example = workspace::root().join("examples/rust-host");
    let bench = bench.current_dir(example).env("CARGO_TARGET_DIR", workspace::target_dir()?.join("host"));
    figures(bench)
}

fn from_python(venv: &Venv) -> Result<Map<String, Value>> {
    let mut bench = Command::new(venv.python());
    bench.arg(workspace::root().join("python/bench/select_worker.py")).current_dir(venv.path());
    // It says what it does for each selection otherwise, which costs more than the selection.
    figures(bench.env("DYN_LOG", "error"))
}

/// The last line that a benchmark prints: its medians in milliseconds.
fn figures(command: &mut Command) -> Result<Map<String, Value>> {
    let printed = run::output(command)?;
    let line = printed.lines().next_back().context("a benchmark printed nothing")?;
    serde_json::from_str(line).with_context(|| format!("a benchmark printed no figures: {line}"))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
