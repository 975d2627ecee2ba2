//! What is counted of text and chat prompts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::{PoolLabels, PoolResultLabels};

/// Half a millisecond to a second.
const SECONDS: [f64; 11] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

/// The metrics of all pools' prompts.
#[derive(Clone, Debug)]
pub(super) struct PromptFamilies {
    requests: Family<PoolResultLabels, Counter>,
    seconds: Family<PoolResultLabels, Histogram, fn() -> Histogram>,
    tokens: Family<PoolLabels, Counter>,
    cached_tokens: Family<PoolLabels, Counter>,
    comparisons: Family<PoolResultLabels, Counter>,
    differ: Family<PoolLabels, Gauge>,
    usable: Family<PoolLabels, Gauge>,
}

/// The metrics of one pool's prompts.
#[derive(Clone, Debug)]
pub struct PromptMetrics {
    families: PromptFamilies,
    labels: PoolLabels,
    /// What the tokenizer's own counts stood at.
    counted: Arc<[AtomicU64; 2]>,
}

// === impl PromptFamilies ===

impl PromptFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let all = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            tokens: Family::default(),
            cached_tokens: Family::default(),
            comparisons: Family::default(),
            differ: Family::default(),
            usable: Family::default(),
        };
        registry.register(
            "prompt_requests",
            "Text and chat prompts, by where their tokens came from or why they have none",
            all.requests.clone(),
        );
        registry.register_with_unit(
            "prompt_time",
            "Time from a request's body to its blocks, by where the tokens came from",
            Unit::Seconds,
            all.seconds.clone(),
        );
        registry.register("prompt_tokens", "Tokens made from the model's files", all.tokens.clone());
        registry.register(
            "prompt_cached_tokens",
            "Those of them that were remembered",
            all.cached_tokens.clone(),
        );
        registry.register(
            "prompt_comparisons",
            "Requests whose tokens were held against the engine's, by result",
            all.comparisons.clone(),
        );
        registry.register(
            "prompt_tokens_differ",
            "Whether the model's files have other tokens than the engine, which answers then",
            all.differ.clone(),
        );
        registry.register(
            "prompt_files_usable",
            "Whether the model's files can be used; absent while they are read",
            all.usable.clone(),
        );
        all
    }

    pub(super) fn of(&self, pool: &str) -> PromptMetrics {
        let labels = PoolLabels { pool: pool.to_owned() };
        drop(self.differ.get_or_create(&labels));
        PromptMetrics { families: self.clone(), labels, counted: Arc::default() }
    }
}

// === impl PromptMetrics ===

impl PromptMetrics {
    fn result(&self, result: &'static str) -> PoolResultLabels {
        PoolResultLabels { pool: self.labels.pool.clone(), result }
    }

    /// A request was answered or refused.
    pub fn request(&self, result: &'static str) {
        self.families.requests.get_or_create(&self.result(result)).inc();
    }

    /// A prompt was tokenized here; the tokenizer's tokens so far, and the remembered ones of them.
    pub fn tokenized(&self, time: Duration, counts: (u64, u64)) {
        self.families.seconds.get_or_create(&self.result("local")).observe(time.as_secs_f64());
        let families = [&self.families.tokens, &self.families.cached_tokens];
        for ((counter, last), now) in families.into_iter().zip(self.counted.iter()).zip([counts.0, counts.1])
        {
            let last = last.fetch_max(now, Ordering::Relaxed);
            counter.get_or_create(&self.labels).inc_by(now.saturating_sub(last));
        }
    }

    /// An engine was asked.
    pub fn asked(&self, time: Duration) {
        self.families.seconds.get_or_create(&self.result("engine")).observe(time.as_secs_f64());
    }

    /// A request's tokens were held against the engine's.
    pub fn compared(&self, result: &'static str) {
        self.families.comparisons.get_or_create(&self.result(result)).inc();
    }

    /// Whether files and engine differ.
    pub fn differs(&self, differs: bool) {
        self.families.differ.get_or_create(&self.labels).set(i64::from(differs));
    }

    /// Whether the files can be used.
    pub fn usable(&self, usable: bool) {
        self.families.usable.get_or_create(&self.labels).set(i64::from(usable));
    }

    /// The pool has no prompts any more: what says how it is now is taken back.
    pub fn leave(&self) {
        self.families.differ.remove(&self.labels);
        self.families.usable.remove(&self.labels);
    }
}
