//! The workspace `compare`: warmroute beside its peers, in one process.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;
use warmroute_e2e::workspace;

use crate::run;

/// The differential test.
pub(crate) fn differential() -> Result<()> {
    // Optimised, as the benchmark is: the peer is compiled once for both.
    run::to_end(&mut cargo(&["test", "--locked", "--release"])?)
}

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds in which the subjects take turns
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Measure only `lookup`, `events`, `pages` or `memory`; may be given more than once
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The benchmark.
pub(crate) fn bench(options: &Options) -> Result<()> {
    let mut bench = cargo(&["run", "--locked", "--release", "--"])?;
    bench.arg("--rounds").arg(options.rounds.to_string());
    for part in &options.only {
        bench.arg("--only").arg(part);
    }
    if let Some(path) = &options.json {
        bench.arg("--json").arg(std::path::absolute(path)?);
    }
    run::to_end(&mut bench)
}

/// Cargo in that workspace, whose dependencies are compiled into a folder of their own.
fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut cargo = run::cargo(arguments)?;
    let target = workspace::target_dir()?.join("compare");
    cargo.current_dir(workspace::root().join("compare")).env("CARGO_TARGET_DIR", target);
    Ok(cargo)
}
