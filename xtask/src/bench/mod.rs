//! `cargo xtask bench`: figures, measured.

mod freshness;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// From an engine's event to a lookup in Envoy that sees it
    Freshness(freshness::Options),
}

/// Runs a benchmark.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Freshness(options) => freshness::run(options),
    }
}
