//! `inspect`: what the workers of a running collector hold, and how they fare.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::Deserialize;
use serde::de::IgnoredAny;
use warmroute_collector::inspect::{GroupReport, PoolReport, PromptsReport, WorkerReport};

use super::http::Collector;
use super::table::Table;

/// Shows the workers of a running collector: state, blocks by tier and group, gaps, replays, age of the last event.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    collector: Collector,
    /// The pool; all of them if it is not given.
    #[arg(long)]
    pool: Option<String>,
    /// Prints JSON, a line for each pool.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize)]
struct Readiness {
    pools: BTreeMap<String, IgnoredAny>,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let pools = match &arguments.pool {
        Some(pool) => vec![pool.clone()],
        None => arguments.collector.get::<Readiness>("/readyz")?.pools.into_keys().collect(),
    };
    for pool in pools {
        let report: PoolReport = arguments.collector.get(&format!("/v1/pools/{pool}/workers"))?;
        if arguments.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            print!("{}", render(&report));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render(report: &PoolReport) -> String {
    let mut table = Table::new([
        "WORKER",
        "RANK",
        "STATE",
        "EVENTS",
        "HEALTH",
        "GPU",
        "CPU",
        "DISK",
        "EXTERNAL",
        "UNPUBLISHED",
        "ORPHANS",
        "GAPS (LOST)",
        "REPLAYS (FAILED)",
        "LAST EVENT",
    ]);
    report.workers.iter().for_each(|worker| row(&mut table, worker));
    let PoolReport { pool, engine, block_size, ready, blocks, unpublished, orphans, names, pages, .. } =
        report;
    let memory =
        report.memory_bytes_per_block.map_or_else(String::new, |bytes| format!(", about {bytes} bytes each"));
    let ready = if *ready { "ready" } else { "not ready" };
    let refused: String = report
        .workers
        .iter()
        .filter_map(|worker| {
            let why = worker.refused.as_ref()?;
            Some(format!("refused: {}/{}: {why}\n", worker.worker, worker.rank))
        })
        .collect();
    let prompts = report.prompts.as_ref().map(|prompts| {
        let PromptsReport { source, error, differs } = prompts;
        let error = error.iter().map(|error| format!("; the model's files cannot be used: {error}"));
        let differs = differs.iter().map(|how| format!("; the model's files differ from the engine {how}"));
        format!("prompts: {source}{}\n", error.chain(differs).collect::<String>())
    });
    let prompts = prompts.unwrap_or_default();
    format!(
        "pool {pool}: {engine}, {ready}, {blocks} blocks of {block_size} tokens in {pages} pages{memory}, {unpublished} \
         unpublished, {orphans} orphans, {names} names\n{prompts}{}{}{refused}",
        table.render(),
        groups(report),
    )
}

/// A table of the groups, where a worker has more than one.
fn groups(report: &PoolReport) -> String {
    if report.workers.iter().all(|worker| worker.groups.len() < 2) {
        return String::new();
    }
    let mut table = Table::new(["WORKER", "RANK", "GROUP", "GPU NAMES", "CPU", "DISK", "EXTERNAL"]);
    for worker in &report.workers {
        for GroupReport { group, names } in &worker.groups {
            let counts = [names.gpu, names.cpu, names.disk, names.external].map(|count| count.to_string());
            let [gpu, cpu, disk, external] = counts;
            let (rank, group) = (worker.rank.to_string(), group.to_string());
            table.row([worker.worker.clone(), rank, group, gpu, cpu, disk, external]);
        }
    }
    table.render()
}

fn row(table: &mut Table, worker: &WorkerReport) {
    let WorkerReport { blocks, received, .. } = worker;
    let gaps = received.gaps_recovered + received.gaps_unrecovered;
    let replays = received.replays_complete + received.replays_partial + received.replays_failed;
    table.row([
        worker.worker.clone(),
        worker.rank.to_string(),
        worker.state.clone(),
        tell(worker.connected, "connected", "lost"),
        tell(worker.healthy, "ok", "failing"),
        blocks.gpu.to_string(),
        blocks.cpu.to_string(),
        blocks.disk.to_string(),
        blocks.external.to_string(),
        worker.unpublished.to_string(),
        worker.orphans.to_string(),
        format!("{gaps} ({})", received.gaps_unrecovered),
        format!("{replays} ({})", received.replays_failed),
        received.last_event_age_seconds.map_or_else(|| "never".to_owned(), |age| format!("{age:.1} s ago")),
    ]);
}

fn tell(is_so: Option<bool>, yes: &str, no: &str) -> String {
    is_so.map_or("-", |is_so| if is_so { yes } else { no }).to_owned()
}
