//! The plugin's metrics.
//!
//! A proxy-wasm plugin can name a statistic but not label it. A label stands in the name as `;<label>=<value>`, and the
//! `stats_tags` of Envoy's bootstrap take it out again:
//!
//! ```text
//! warmroute_requests_total;outcome=steered;reason=warm;pool=llama
//! ```

use crate::decision::{Basis, Decision, Reason};
use crate::host::{Host, MetricId, MetricKind};
use crate::trust::{self, Verdict};

/// What happened to a request, as the `outcome` label has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The filter named the destination.
    Steered(Basis),
    /// The filter would have named it, but only observes.
    Observed(Basis),
    /// The request was left to the proxy.
    Fallback(Reason),
}

/// The metrics of one pool's requests.
#[derive(Debug)]
pub struct RequestMetrics {
    steered: ByBasis,
    observed: ByBasis,
    fallbacks: Vec<(Reason, Option<MetricId>)>,
    prompt_blocks: Option<MetricId>,
    cached_blocks: Option<MetricId>,
    page_reads: Option<MetricId>,
    decision_us: Option<MetricId>,
    held_bytes: Option<MetricId>,
    index_age_ms: Option<MetricId>,
    prediction_error_blocks: Option<MetricId>,
    predictions: Predictions,
    questions: Questions,
}

/// What became of the questions to the collector about prompts that are text, and how long they were waited for.
#[derive(Debug, Default)]
struct Questions {
    answered: Option<MetricId>,
    late: Option<MetricId>,
    unavailable: Option<MetricId>,
    refused: Option<MetricId>,
    malformed: Option<MetricId>,
    /// The request ended first.
    abandoned: Option<MetricId>,
    wait_us: Option<MetricId>,
}

/// A counter for each way in which a prediction comes out.
#[derive(Debug, Default)]
struct Predictions {
    right: Option<MetricId>,
    over: Option<MetricId>,
    under: Option<MetricId>,
}

/// A counter for each basis of a choice.
#[derive(Debug, Default)]
struct ByBasis {
    warm: Option<MetricId>,
    recent: Option<MetricId>,
    cold: Option<MetricId>,
}

/// The metrics of one pool's publisher.
#[derive(Debug)]
pub struct PublisherMetrics {
    /// Answers that were stored.
    pub answers: Option<MetricId>,
    /// Answers and calls that failed.
    pub failures: Option<MetricId>,
    /// Pages that were written.
    pub pages: Option<MetricId>,
    /// Full copies that were completed.
    pub copies: Option<MetricId>,
}

// === impl Outcome ===

impl Outcome {
    fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::Steered(basis) => ("steered", basis.as_str()),
            Self::Observed(basis) => ("observed", basis.as_str()),
            Self::Fallback(reason) => ("fallback", reason.as_str()),
        }
    }
}

// === impl ByBasis ===

impl ByBasis {
    fn define(counter: impl Fn(Basis) -> Option<MetricId>) -> Self {
        Self { warm: counter(Basis::Warm), recent: counter(Basis::Recent), cold: counter(Basis::Cold) }
    }

    fn of(&self, basis: Basis) -> Option<MetricId> {
        match basis {
            Basis::Warm => self.warm,
            Basis::Recent => self.recent,
            Basis::Cold => self.cold,
        }
    }
}

// === impl RequestMetrics ===

impl RequestMetrics {
    /// Defines the metrics of the pool of this name. `takes_text`: the collector is asked about text prompts.
    pub fn define(host: &impl Host, pool: &str, takes_text: bool) -> Self {
        let requests = |outcome: Outcome| {
            let (outcome, reason) = outcome.labels();
            let name = format!("warmroute_requests_total;outcome={outcome};reason={reason};pool={pool}");
            host.define_metric(MetricKind::Counter, &name)
        };
        let of = |kind, name: &str| host.define_metric(kind, &format!("warmroute_{name};pool={pool}"));
        Self {
            steered: ByBasis::define(|basis| requests(Outcome::Steered(basis))),
            observed: ByBasis::define(|basis| requests(Outcome::Observed(basis))),
            fallbacks: Reason::all().map(|reason| (reason, requests(Outcome::Fallback(reason)))).collect(),
            prompt_blocks: of(MetricKind::Counter, "prompt_blocks_total"),
            cached_blocks: of(MetricKind::Counter, "cached_blocks_total"),
            page_reads: of(MetricKind::Counter, "page_reads_total"),
            decision_us: of(MetricKind::Histogram, "decision_us"),
            held_bytes: of(MetricKind::Histogram, "held_bytes"),
            index_age_ms: of(MetricKind::Gauge, "index_age_ms"),
            prediction_error_blocks: of(MetricKind::Histogram, "prediction_error_blocks"),
            predictions: Predictions {
                right: of(MetricKind::Counter, "predictions_total;outcome=right"),
                over: of(MetricKind::Counter, "predictions_total;outcome=over"),
                under: of(MetricKind::Counter, "predictions_total;outcome=under"),
            },
            questions: if takes_text { Questions::define(of) } else { Questions::default() },
        }
    }

    /// Defines what can be counted of requests that no pool takes.
    pub fn define_without_pool(host: &impl Host) -> Self {
        let (outcome, reason) = Outcome::Fallback(Reason::NoPool).labels();
        let name = format!("warmroute_requests_total;outcome={outcome};reason={reason};pool=none");
        Self {
            steered: ByBasis::default(),
            observed: ByBasis::default(),
            fallbacks: vec![(Reason::NoPool, host.define_metric(MetricKind::Counter, &name))],
            prompt_blocks: None,
            cached_blocks: None,
            page_reads: None,
            decision_us: None,
            held_bytes: None,
            index_age_ms: None,
            prediction_error_blocks: None,
            predictions: Predictions::default(),
            questions: Questions::default(),
        }
    }

    /// Counts a request that was held until so much of its body was there.
    pub fn held(&self, host: &impl Host, bytes: u64) {
        record(host, self.held_bytes, bytes);
    }

    /// Counts a question to the collector that has come to an end after so long: with blocks, or for this reason without.
    pub fn asked(&self, host: &impl Host, failure: Option<Reason>, waited_us: u64) {
        let questions = &self.questions;
        let counter = match failure {
            None => questions.answered,
            Some(Reason::CollectorLate) => questions.late,
            Some(Reason::CollectorRefused) => questions.refused,
            Some(Reason::CollectorMalformed) => questions.malformed,
            Some(_) => questions.unavailable,
        };
        add(host, counter, 1);
        record(host, questions.wait_us, waited_us);
    }

    /// Counts a question whose request has ended before the answer came.
    pub fn gave_up_asking(&self, host: &impl Host) {
        add(host, self.questions.abandoned, 1);
    }

    /// Counts a prediction that was held against the engine's own word.
    pub fn compared(&self, host: &impl Host, verdict: Verdict) {
        let counter = match verdict.outcome {
            trust::Outcome::Right => self.predictions.right,
            trust::Outcome::Over => self.predictions.over,
            trust::Outcome::Under => self.predictions.under,
        };
        add(host, counter, 1);
        record(host, self.prediction_error_blocks, verdict.error_blocks);
    }

    /// Tells how old the index is.
    pub fn index_age(&self, host: &impl Host, age_us: u64) {
        record(host, self.index_age_ms, age_us / 1000);
    }

    /// Counts a decision that took so long.
    pub fn count(&self, host: &impl Host, decision: &Decision, steers: bool, decision_us: u64) {
        let counter = match decision {
            Decision::Route(route) if steers => self.steered.of(route.basis),
            Decision::Route(route) => self.observed.of(route.basis),
            Decision::Fallback(fallback) => {
                let found = self.fallbacks.iter().find(|(reason, _)| *reason == fallback.reason);
                found.and_then(|(_, counter)| *counter)
            }
        };
        add(host, counter, 1);
        let Some(lookup) = decision.lookup() else { return };
        add(host, self.prompt_blocks, u64::from(lookup.prompt_blocks));
        add(host, self.page_reads, u64::from(lookup.reads));
        record(host, self.decision_us, decision_us);
        if let Decision::Route(route) = decision {
            add(host, self.cached_blocks, u64::from(route.cached_blocks));
        }
    }
}

// === impl Questions ===

impl Questions {
    fn define(of: impl Fn(MetricKind, &str) -> Option<MetricId>) -> Self {
        let counter = |outcome| of(MetricKind::Counter, &format!("prompt_questions_total;outcome={outcome}"));
        Self {
            answered: counter("answered"),
            late: counter("late"),
            unavailable: counter("unavailable"),
            refused: counter("refused"),
            malformed: counter("malformed"),
            abandoned: counter("abandoned"),
            wait_us: of(MetricKind::Histogram, "prompt_wait_us"),
        }
    }
}

// === impl PublisherMetrics ===

impl PublisherMetrics {
    /// Defines the metrics of the pool of this name.
    pub fn define(host: &impl Host, pool: &str) -> Self {
        let of = |name: &str| {
            let name = format!("warmroute_publisher_{name}_total;pool={pool}");
            host.define_metric(MetricKind::Counter, &name)
        };
        Self { answers: of("answers"), failures: of("failures"), pages: of("pages"), copies: of("copies") }
    }
}

/// Adds to a counter, if the host has it.
pub(crate) fn add(host: &impl Host, metric: Option<MetricId>, amount: u64) {
    if let Some(metric) = metric {
        host.add(metric, amount);
    }
}

/// Sets a gauge or adds to a histogram, if the host has it.
pub(crate) fn record(host: &impl Host, metric: Option<MetricId>, value: u64) {
    if let Some(metric) = metric {
        host.record(metric, value);
    }
}
