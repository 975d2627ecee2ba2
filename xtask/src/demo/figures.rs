//! What is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use warmroute_e2e::{Engine, Samples};

use super::drive::Outcome;

/// What one way of routing made of the requests.
#[derive(Serialize)]
pub(crate) struct Figures {
    /// Of all prompt tokens, the share that the engines found in their caches.
    pub(crate) cached_share: f64,
    /// Time to the first token.
    pub(crate) ttft_ms: Ttft,
    /// By the engine's address.
    pub(crate) requests_per_worker: BTreeMap<String, u64>,
}

/// Percentiles over the requests that were answered, in milliseconds.
#[derive(Serialize)]
pub(crate) struct Ttft {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
}

/// What the filter counted.
pub(crate) struct Decisions {
    pub(crate) steered: u64,
    /// By reason.
    pub(crate) fallback: BTreeMap<String, u64>,
}

// === impl Figures ===

impl Figures {
    pub(crate) fn of(outcomes: &[Outcome], engines: &[Engine]) -> Self {
        let answers = || outcomes.iter().filter_map(Outcome::good);
        let cached: u64 = answers().map(|answer| answer.usage.cached_tokens).sum();
        let prompt: u64 = answers().map(|answer| answer.usage.prompt_tokens).sum();
        let mut times: Vec<Duration> = answers().map(|answer| answer.ttft).collect();
        times.sort_unstable();
        // By address, as an engine calls itself.
        let mut requests_per_worker: BTreeMap<String, u64> =
            engines.iter().map(|engine| (engine.address().to_string(), 0)).collect();
        for engine in answers().filter_map(|answer| answer.engine()) {
            *requests_per_worker.entry(engine.to_owned()).or_default() += 1;
        }
        Self {
            cached_share: share(cached, prompt),
            ttft_ms: Ttft { p50: percentile_ms(&times, 50), p90: percentile_ms(&times, 90) },
            requests_per_worker,
        }
    }
}

/// `part` of `whole`; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The smallest of the sorted times that at least `percent` of them do not exceed, to a tenth of a millisecond.
pub(crate) fn percentile_ms(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    let time = rank.checked_sub(1).and_then(|index| sorted.get(index)).copied().unwrap_or_default();
    (time.as_secs_f64() * 1e4).round() / 10.0
}

// === impl Decisions ===

impl Decisions {
    pub(crate) fn of(samples: &Samples) -> Self {
        let by_reason = samples.sums_by("warmroute_requests_total", "reason", &[("outcome", "fallback")]);
        Self {
            steered: count(samples.sum("warmroute_requests_total", &[("outcome", "steered")])),
            fallback: by_reason.into_iter().map(|(reason, sum)| (reason, count(sum))).collect(),
        }
    }

    /// What was counted after `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        self.steered = self.steered.saturating_sub(before.steered);
        for (reason, requests) in &mut self.fallback {
            *requests = requests.saturating_sub(before.fallback.get(reason).copied().unwrap_or_default());
        }
        self.fallback.retain(|_, requests| *requests > 0);
        self
    }
}

/// Counters are written as floating-point numbers, but are whole and not negative.
fn count(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use warmroute_e2e::Samples;

    use super::{Decisions, percentile_ms};

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<_> = (1..=10).map(Duration::from_millis).collect();
        assert_eq!(percentile_ms(&times, 50), 5.0);
        assert_eq!(percentile_ms(&times, 90), 9.0);
        assert_eq!(percentile_ms(&[], 90), 0.0);
    }

    #[test]
    fn decisions_are_counted_from_a_start() {
        let of = |page| Decisions::of(&Samples::parse(page).unwrap());
        let before = of("warmroute_requests_total{outcome=\"fallback\",reason=\"no_index\"} 2\n");
        let after = of("warmroute_requests_total{outcome=\"fallback\",reason=\"no_index\"} 2
warmroute_requests_total{outcome=\"fallback\",reason=\"cold\"} 3
warmroute_requests_total{outcome=\"steered\",reason=\"cached\"} 4\n");
        let decisions = after.since(&before);
        assert_eq!(decisions.steered, 4);
        assert_eq!(decisions.fallback.into_iter().collect::<Vec<_>>(), [("cold".to_owned(), 3)]);
    }
}
