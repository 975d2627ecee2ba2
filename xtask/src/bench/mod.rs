//! `cargo xtask bench`: figures, measured.

mod component;
mod freshness;
mod look;
mod overhead;
mod prompts;
mod quality;
mod scale;

use anyhow::Result;
use clap::Subcommand;

use crate::compare;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// From an engine's event to a lookup in Envoy that sees it
    Freshness(freshness::Options),
    /// From the body of a long conversation's second turn to its blocks
    Prompts(prompts::Options),
    /// A selection through the component, from Rust and from Python, beside a peer's from Python
    Component(component::Options),
    /// The index alone, beside a peer's: lookups, events applied, pages, memory
    Index(compare::Options),
    /// What a request costs on its way, beside plain Envoy, an external processor and the routers of others
    Overhead(overhead::Options),
    /// Hundreds of workers, millions of blocks: memory, feed, a new Envoy's copy, events applied
    Scale(scale::Options),
    /// Where the filter's own time goes, in the real Envoy
    Wasm(overhead::phases::Options),
    /// The policies, beside the peers' rules and the ideal, in simulated time: a trace, or built-in workloads
    Quality(quality::Options),
}

/// Runs a benchmark.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Freshness(options) => freshness::run(options),
        Bench::Prompts(options) => prompts::run(options),
        Bench::Component(options) => component::run(options),
        Bench::Index(options) => compare::bench(options),
        Bench::Overhead(options) => overhead::run(options),
        Bench::Scale(options) => scale::run(options),
        Bench::Wasm(options) => overhead::phases::run(options),
        Bench::Quality(options) => quality::run(options),
    }
}
