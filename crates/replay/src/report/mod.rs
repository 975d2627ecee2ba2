//! The figures, for people and for programs.

mod chart;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::figures::Row;
use crate::options::Options;

/// A table for people.
pub(crate) fn table<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut table = format!(
        "{:<14} {:<14} {:>5} {:>7} {:>10} {:>10} {:>10} {:>8} {:>9}\n",
        "workload", "policy", "load", "cached", "ttft p50", "p90", "p99 ms", "req/s", "max/mean"
    );
    for row in rows {
        let Row { workload, policy, load, cached_share, ttft_ms_p50, ttft_ms_p90, ttft_ms_p99, .. } = row;
        let workload: String = workload.chars().take(14).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "{workload:<14} {policy:<14} {load:>5.2} {cached_share:>7.4} {ttft_ms_p50:>10.1} {ttft_ms_p90:>10.1} \
             {ttft_ms_p99:>10.1} {:>8.2} {:>9.3}",
            row.throughput_rps, row.imbalance
        );
    }
    table
}

/// The rows as JSON.
pub(crate) fn json(file: &Path, rows: &[Row], options: &Options) -> Result<()> {
    let text = format!("{:#}\n", json!({ "workers": options.workers, "rows": rows }));
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// A chart of each figure and workload, a file each.
pub(crate) fn charts(dir: &Path, rows: &[Row]) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut workloads: Vec<&str> = rows.iter().map(|row| row.workload.as_str()).collect();
    workloads.dedup();
    for workload in workloads {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.workload == workload).collect();
        for figure in &chart::FIGURES {
            let file = dir.join(format!("{workload}-{}.svg", figure.name));
            fs::write(&file, chart::svg(workload, figure, &rows))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}
