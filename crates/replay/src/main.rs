//! Compares rules of routing: replays a trace or a built-in workload through each of them, in simulated time.
//!
//! ```text
//! workload --request--> router --worker--> engine (the simulated engine's scheduler and cache)
//!                         ^                  |
//!                         '--- gateway <-----'  events (delayed) to the index, answers to the books
//! ```
//!
//! The engines are those of `warmroute-simengine`, stepped by a clock that jumps from one event to the next. What a
//! router knows is what warmroute's filter knows: the index that `warmroute-index` makes of the engines' events, a moment
//! late, and the books of what is in flight. warmroute's policies are asked by the filter's own code,
//! `warmroute_routing::choose`. The peers' rules are written here from their documentation, with their default constants.
//!
//! Nothing sleeps, and equal seeds give equal figures.

mod capacity;
mod dice;
mod figures;
mod fleet;
mod gateway;
mod options;
mod report;
mod router;
mod simulation;
#[cfg(test)]
mod tests;
mod workload;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::options::Options;
use crate::simulation::Setting;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let setting = options.setting();
    let mut rows = Vec::new();
    for workloads in options.workloads()? {
        let Some(name) = workloads.first().map(|workload| workload.name.clone()) else { continue };
        let rate = match options.highest_rate {
            Some(rate) => rate,
            None => capacity::highest_rate(&workloads, &setting)?,
        };
        eprintln!("{name}: `default` keeps its queues bounded up to {rate:.3} times the workload's own rate");
        for load in &options.loads {
            for policy in options.policies() {
                rows.push(figures::Row::measure(policy, &workloads, *load, rate, &setting)?);
            }
        }
        println!("{}", report::table(rows.iter().filter(|row| row.workload == name)));
    }
    if let Some(file) = &options.json {
        report::json(file, &rows, options)?;
    }
    if let Some(dir) = &options.charts {
        report::charts(dir, &rows)?;
    }
    Ok(())
}
