//! `cargo xtask bench`: figures, measured.

mod freshness;

use anyhow::Result;
use clap::Subcommand;

use crate::compare;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// From an engine's event to a lookup in Envoy that sees it
    Freshness(freshness::Options),
    /// The index alone, beside a peer's: lookups, events applied, pages, memory
    Index(compare::Options),
}

/// Runs a benchmark.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Freshness(options) => freshness::run(options),
        Bench::Index(options) => compare::bench(options),
    }
}
