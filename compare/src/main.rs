//! `cargo xtask bench index`: what our index costs, beside those of `dynamo-kv-router`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use warmroute_compare::bench::report::Report;
use warmroute_compare::bench::{events, lookup, memory, pages};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

#[derive(Parser)]
struct Options {
    /// Rounds in which the subjects take turns
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Measure only these; may be given more than once
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let wanted = |part: &str| options.only.is_empty() || options.only.iter().any(|only| only == part);
    let mut report = Report::default();
    if wanted("lookup") {
        lookup::run(&mut report, options.rounds);
    }
    if wanted("events") {
        events::run(&mut report, options.rounds);
    }
    if wanted("pages") {
        pages::run(&mut report, options.rounds);
    }
    if wanted("memory") {
        memory::run(&mut report);
    }
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.json()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
