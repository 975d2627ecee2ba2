//! What is compared.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::router;
use crate::simulation::{self, Outcome, Setting};
use crate::workload::Workload;

/// One policy, workload and load; over all seeds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) policy: String,
    pub(crate) workload: String,
    /// Part of the highest rate at which `default` keeps its queues bounded.
    pub(crate) load: f64,
    /// Of all prompt tokens, those that the engines found in their caches.
    pub(crate) cached_share: f64,
    pub(crate) ttft_ms_p50: f64,
    pub(crate) ttft_ms_p90: f64,
    pub(crate) ttft_ms_p99: f64,
    /// Requests a second, from the first request to the last token.
    pub(crate) throughput_rps: f64,
    /// The most requests that a worker had in hand, in the mean over time, against the mean of all workers.
    pub(crate) imbalance: f64,
}

/// Replays the workloads, one for each seed, through a policy.
pub(crate) fn replay(
    policy: &str,
    workloads: &[Workload],
    rate: f64,
    setting: &Setting,
) -> Result<Vec<Outcome>> {
    let replay = |(seed, workload): (usize, &Workload)| {
        let mut router = router::of_name(policy, workload.block_size, setting, seed as u64)?
            .with_context(|| format!("there is no policy {policy}"))?;
        simulation::run(workload, rate, setting, router.as_mut())
    };
    workloads.iter().enumerate().map(replay).collect()
}

// === impl Row ===

impl Row {
    /// Measures a policy at a part of the highest rate.
    pub(crate) fn measure(
        policy: &str,
        workloads: &[Workload],
        load: f64,
        highest_rate: f64,
        setting: &Setting,
    ) -> Result<Self> {
        let outcomes = replay(policy, workloads, load * highest_rate, setting)?;
        let workload = workloads.first().map(|workload| workload.name.clone()).unwrap_or_default();
        Ok(Self::of(policy, workload, load, &outcomes))
    }

    fn of(policy: &str, workload: String, load: f64, outcomes: &[Outcome]) -> Self {
        let mut ttft: Vec<Duration> = outcomes.iter().flat_map(|outcome| &outcome.ttft).copied().collect();
        ttft.sort_unstable();
        let sum = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>();
        let cached_share =
            sum(|outcome| outcome.cached_tokens as f64) / sum(|outcome| outcome.prompt_tokens as f64);
        Self {
            policy: policy.to_owned(),
            workload,
            load,
            cached_share: rounded(cached_share, 4),
            ttft_ms_p50: percentile_ms(&ttft, 50),
            ttft_ms_p90: percentile_ms(&ttft, 90),
            ttft_ms_p99: percentile_ms(&ttft, 99),
            throughput_rps: rounded(ttft.len() as f64 / sum(|outcome| outcome.span.as_secs_f64()), 2),
            imbalance: rounded(sum(imbalance) / outcomes.len().max(1) as f64, 3),
        }
    }
}

fn imbalance(outcome: &Outcome) -> f64 {
    let in_hand = || outcome.in_hand.iter().map(Duration::as_secs_f64);
    let mean = in_hand().sum::<f64>() / outcome.in_hand.len().max(1) as f64;
    in_hand().fold(0.0, f64::max) / mean
}

fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (value * unit).round() / unit
}

/// The smallest of the sorted times that at least `percent` of them do not exceed, to a tenth of a millisecond.
fn percentile_ms(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    let time = rank.checked_sub(1).and_then(|index| sorted.get(index)).copied().unwrap_or_default();
    rounded(time.as_secs_f64() * 1e3, 1)
}
