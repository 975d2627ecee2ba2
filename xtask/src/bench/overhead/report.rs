//! What was measured, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::load::Served;
use super::subject::{BASELINE, SUBJECTS};

/// One subject's turn in one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    cpu_us: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_rps: f64,
    /// Of all requests, those that were served by the worker that has the prompt cached.
    held: f64,
}

/// A subject with prompts of one length, over all rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) subject: &'static str,
    pub(super) tokens: usize,
    pub(super) cpu_us: f64,
    /// The median of the differences within a round.
    pub(super) above_baseline_us: Option<f64>,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_rps: f64,
    pub(super) held: f64,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// By length and subject, the rounds.
    cells: BTreeMap<(usize, &'static str), BTreeMap<usize, Cell>>,
    not_run: Vec<(&'static str, Option<usize>, String)>,
}

// === impl Cell ===

impl Cell {
    pub(super) fn new(served: &Served, cpu_ns: u64, max_rps: f64) -> Self {
        let count = served.latencies.len().max(1) as f64;
        Self {
            cpu_us: cpu_ns as f64 / 1000.0 / count,
            p50_ms: percentile_ms(&served.latencies, 50),
            p99_ms: percentile_ms(&served.latencies, 99),
            max_rps,
            held: served.by_holder as f64 / count,
        }
    }
}

// === impl Report ===

impl Report {
    pub(super) fn add(&mut self, subject: &'static str, tokens: usize, round: usize, cell: Cell) {
        self.cells.entry((tokens, subject)).or_default().insert(round, cell);
    }

    /// Notes why a subject could not be measured, at all or with prompts of a length.
    pub(super) fn not_run(&mut self, subject: &'static str, tokens: Option<usize>, why: &anyhow::Error) {
        let why = format!("{why:#}");
        eprintln!("{subject}: {why}");
        if !self.not_run.iter().any(|(name, at, _)| (*name, *at) == (subject, tokens)) {
            self.not_run.push((subject, tokens, why));
        }
    }

    /// By length, then in the order of the subjects.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut lengths: Vec<usize> = self.cells.keys().map(|(tokens, _)| *tokens).collect();
        lengths.dedup();
        let rows = lengths.iter().flat_map(|tokens| SUBJECTS.map(|subject| self.row(subject.name, *tokens)));
        rows.flatten().collect()
    }

    fn row(&self, subject: &'static str, tokens: usize) -> Option<Row> {
        let rounds = self.cells.get(&(tokens, subject))?;
        let baseline = self.cells.get(&(tokens, BASELINE));
        let of = |field: fn(&Cell) -> f64| median(rounds.values().map(field));
        let above =
            rounds.iter().filter_map(|(round, cell)| Some(cell.cpu_us - baseline?.get(round)?.cpu_us));
        Some(Row {
            subject,
            tokens,
            cpu_us: of(|cell| cell.cpu_us)?,
            above_baseline_us: median(above),
            p50_ms: of(|cell| cell.p50_ms)?,
            p99_ms: of(|cell| cell.p99_ms)?,
            max_rps: of(|cell| cell.max_rps)?,
            held: of(|cell| cell.held)?,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let row = |row: Row| {
            json!({
                "subject": row.subject,
                "tokens": row.tokens,
                "cpu_us_per_request": rounded(row.cpu_us),
                "cpu_us_above_envoy": row.above_baseline_us.map(rounded),
                "p50_ms": row.p50_ms,
                "p99_ms": row.p99_ms,
                "max_rps": rounded(row.max_rps),
                "served_where_cached": row.held,
            })
        };
        let not_run =
            |(subject, tokens, reason): &_| json!({ "subject": subject, "tokens": tokens, "reason": reason });
        let not_run: Vec<Value> = self.not_run.iter().map(not_run).collect();
        json!({ "rows": self.rows().into_iter().map(row).collect::<Vec<_>>(), "not_run": not_run })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>7}  {:<24}{:>13}{:>13}{:>10}{:>10}{:>12}",
            "tokens", "subject", "CPU us/req", "above envoy", "p50 ms", "p99 ms", "highest/s"
        )?;
        let mut last = None;
        for row in self.rows() {
            if last.is_some_and(|last| last != row.tokens) {
                writeln!(f)?;
            }
            last = Some(row.tokens);
            let above = row.above_baseline_us.map(|us| format!("{us:.0}")).unwrap_or_default();
            let Row { tokens, subject, cpu_us, p50_ms, p99_ms, max_rps, .. } = row;
            writeln!(
                f,
                "{tokens:>7}  {subject:<24}{cpu_us:>13.0}{above:>13}{p50_ms:>10.2}{p99_ms:>10.2}{max_rps:>12.0}"
            )?;
        }
        for (subject, tokens, reason) in &self.not_run {
            let tokens = tokens.map(|tokens| format!(" at {tokens} tokens")).unwrap_or_default();
            writeln!(f, "not run: {subject}{tokens}: {reason}")?;
        }
        Ok(())
    }
}

/// To the microsecond.
fn percentile_ms(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    let time = rank.checked_sub(1).and_then(|index| sorted.get(index)).copied().unwrap_or_default();
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(cpu_us: f64) -> Cell {
        Cell { cpu_us, p50_ms: 1.0, p99_ms: 2.0, max_rps: 3.0, held: 1.0 }
    }

    #[test]
    fn tells_medians_and_the_median_of_the_differences_within_a_round() {
        let mut report = Report::default();
        // The machine grows slower from round to round; the difference stays about 10.
        for (round, (envoy, body)) in [(100.0, 110.0), (200.0, 211.0), (300.0, 309.0)].into_iter().enumerate()
        {
            report.add("envoy", 512, round, cell(envoy));
            report.add("warmroute_body", 512, round, cell(body));
        }
        report.not_run("sglang_router", None, &anyhow::anyhow!("no Python"));
        let rows = report.rows();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[1].cpu_us, rows[1].above_baseline_us), (211.0, Some(10.0)));
        let json = report.to_json();
        assert_eq!(json["rows"][1]["subject"], "warmroute_body");
        assert_eq!(json["not_run"][0]["reason"], "no Python");
    }
}
