//! How much the fleet can take.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::figures::replay;
use crate::simulation::{Outcome, Setting};
use crate::workload::Workload;

/// The queues count as bounded while first tokens take no more than this many times as long, in the mean, as they would
/// without any queue. At a rate that the fleet cannot keep up with, the queues of any long workload are beyond it.
const MOST_SLOWDOWN: f64 = 10.0;

/// The rate is found to this part of itself.
const PRECISION: f64 = 0.01;

/// A rate beyond this is none.
const HIGHEST: f64 = 1e4;

/// The highest rate, in terms of the workloads' own, at which `default` keeps its queues bounded.
pub(crate) fn highest_rate(workloads: &[Workload], setting: &Setting) -> Result<f64> {
    let bounded = |rate: f64| -> Result<bool> {
        Ok(is_bounded(&replay("default", workloads, rate, setting)?, setting))
    };
    let (mut low, mut high) = (1.0, 1.0);
    while bounded(high)? {
        (low, high) = (high, high * 2.0);
        ensure!(high < HIGHEST, "the workload is too light to fill the fleet");
    }
    while low == high || !bounded(low)? {
        (low, high) = (low / 2.0, low);
        ensure!(low > 1.0 / HIGHEST, "the workload's first requests alone fill the fleet");
    }
    while high - low > PRECISION * low {
        let middle = f64::midpoint(low, high);
        *(if bounded(middle)? { &mut low } else { &mut high }) = middle;
    }
    Ok(low)
}

fn is_bounded(outcomes: &[Outcome], setting: &Setting) -> bool {
    let requests: usize = outcomes.iter().map(|outcome| outcome.ttft.len()).sum();
    let uncached: u64 = outcomes.iter().map(|outcome| outcome.prompt_tokens - outcome.cached_tokens).sum();
    let waited: Duration = outcomes.iter().flat_map(|outcome| &outcome.ttft).sum();
    let time = setting.hardware.time;
    let computed = time.prefill_per_token.as_secs_f64() * uncached as f64;
    waited.as_secs_f64() <= MOST_SLOWDOWN * (computed + time.base.as_secs_f64() * requests as f64)
}
