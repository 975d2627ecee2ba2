//! What the run comes to: figures, and what had to hold.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::memory::Thirds;
use super::request::Kind;
use super::tally::{Counts, Tally};
use super::watch::{Counted, Watched};

/// Everything about one run.
pub(crate) struct Report {
    pub(crate) minutes: f64,
    pub(crate) seed: u64,
    pub(crate) rate: f64,
    pub(crate) requests: BTreeMap<&'static str, Counts>,
    /// Of those through warmroute.
    pub(crate) sum: Counts,
    pub(crate) failures: Vec<String>,
    pub(crate) disturbances: BTreeMap<&'static str, u64>,
    pub(crate) watched: Watched,
    pub(crate) counted: Counted,
    /// Requests that Envoy still held after the last answer.
    pub(crate) held: u64,
    /// Lines of Envoy's log that tell of a VM that has died.
    pub(crate) crashes: Vec<String>,
}

/// Something that must hold.
struct Check {
    what: &'static str,
    holds: bool,
}

// === impl Report ===

impl Report {
    /// Takes over what came of the requests.
    pub(crate) fn requests_of(tally: &Tally) -> (BTreeMap<&'static str, Counts>, Counts, Vec<String>) {
        let sum = tally.sum(|kind| kind != Kind::Plain.as_str());
        (tally.by_kind().clone(), sum, tally.failures().to_vec())
    }

    /// What did not hold.
    pub(crate) fn broken(&self) -> Vec<&'static str> {
        self.checks().into_iter().filter(|check| !check.holds).map(|check| check.what).collect()
    }

    fn checks(&self) -> Vec<Check> {
        let flat = |thirds: Option<Thirds>| thirds.is_none_or(|thirds| thirds.is_flat());
        vec![
            Check { what: "no request failed", holds: self.sum.failed == 0 },
            Check {
                what: "requests were steered in each minute",
                holds: !self.watched.steered_per_minute.contains(&0) && self.counted.decisions.steered > 0,
            },
            Check { what: "Envoy's memory is flat", holds: flat(self.watched.envoy.thirds()) },
            Check { what: "the collector's memory is flat", holds: flat(self.watched.collector.thirds()) },
            Check { what: "no VM has died", holds: self.crashes.is_empty() },
            Check { what: "no request is left in Envoy", holds: self.held == 0 },
        ]
    }

    pub(crate) fn to_json(&self) -> Value {
        let thirds = |thirds: Option<Thirds>| thirds.map(|thirds| thirds.to_json());
        let checks: BTreeMap<_, _> = self.checks().iter().map(|check| (check.what, check.holds)).collect();
        json!({
            "minutes": self.minutes,
            "seed": self.seed,
            "rate": self.rate,
            "requests": self.requests,
            "sum": self.sum,
            "failures": self.failures,
            "disturbances": self.disturbances,
            "retries": self.counted.retries,
            "steered": self.counted.decisions.steered,
            "steered_per_minute": self.watched.steered_per_minute,
            "observed": self.counted.observed,
            "fallback": self.counted.decisions.fallback,
            "publisher": {
                "answers": self.counted.publisher_answers,
                "failures": self.counted.publisher_failures,
                "copies": self.counted.publisher_copies,
            },
            "memory": {
                "envoy": thirds(self.watched.envoy.thirds()),
                "collector": thirds(self.watched.collector.thirds()),
            },
            "held": self.held,
            "crashes": self.crashes,
            "checks": checks,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} minutes at {} requests a second, seed {}\n", self.minutes, self.rate, self.seed)?;
        writeln!(out, "{:<22}{:>10}{:>10}{:>10}{:>10}", "requests", "served", "failed", "cut", "left")?;
        let through = self.requests.iter().map(|(kind, counts)| (*kind, counts));
        for (kind, Counts { served, failed, cut, left }) in through.chain([("through warmroute", &self.sum)])
        {
            writeln!(out, "{kind:<22}{served:>10}{failed:>10}{cut:>10}{left:>10}")?;
        }
        writeln!(out)?;
        for (name, count) in &self.disturbances {
            row(out, name, count)?;
        }
        let Counted { retries, decisions, observed, publisher_answers, publisher_failures, publisher_copies } =
            &self.counted;
        writeln!(out)?;
        row(out, "retries", retries)?;
        row(out, "steered", &decisions.steered)?;
        row(out, "steered, by minute", &format!("{:?}", self.watched.steered_per_minute))?;
        row(out, "observed", observed)?;
        for (reason, count) in decisions.fallback.iter().filter(|(_, count)| **count > 0) {
            row(out, &format!("fallback: {reason}"), count)?;
        }
        row(out, "publisher: answers", publisher_answers)?;
        row(out, "publisher: failures", publisher_failures)?;
        row(out, "publisher: copies", publisher_copies)?;
        writeln!(out)?;
        memory(out, "memory of Envoy", self.watched.envoy.thirds())?;
        memory(out, "memory of collector", self.watched.collector.thirds())?;
        for told in self.failures.iter().chain(&self.crashes) {
            writeln!(out, "\n{told}")?;
        }
        writeln!(out)?;
        for check in self.checks() {
            writeln!(out, "{:<6}{}", if check.holds { "ok" } else { "BROKEN" }, check.what)?;
        }
        Ok(())
    }
}

fn row(out: &mut fmt::Formatter<'_>, name: &str, value: &impl fmt::Display) -> fmt::Result {
    writeln!(out, "{name:<30} {value}")
}

fn memory(out: &mut fmt::Formatter<'_>, name: &str, thirds: Option<Thirds>) -> fmt::Result {
    let Some(thirds) = thirds else {
        return row(out, name, &"not judged: the run is too short");
    };
    let Thirds { length, second_mib, last_mib } = &thirds;
    let growth = thirds.growth() * 100.0;
    let told = format!(
        "{second_mib:.1} MiB, then {last_mib:.1} MiB ({growth:+.1}%) in the last thirds of {} s",
        length.as_secs()
    );
    row(out, name, &told)
}
