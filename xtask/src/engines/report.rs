//! What came out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use warmroute_e2e::Samples;
use warmroute_e2e::exactness::Verdict;
use warmroute_e2e::real::Traits;

use super::mix::{Drawn, Sort};

/// The figures.
pub(crate) struct Report {
    traits: Traits,
    replicas: usize,
    by_sort: BTreeMap<Sort, Counts>,
    by_namespace: BTreeMap<String, Counts>,
    by_worker: BTreeMap<Option<SocketAddr>, u64>,
    prompt_tokens: u64,
    predicted_tokens: u64,
    reported_tokens: u64,
    differences: Vec<String>,
    removed_blocks: u64,
    resets: u64,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    equal: u64,
    with_hits: u64,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(traits: Traits, replicas: usize) -> Self {
        Self {
            traits,
            replicas,
            by_sort: BTreeMap::new(),
            by_namespace: BTreeMap::new(),
            by_worker: BTreeMap::new(),
            prompt_tokens: 0,
            predicted_tokens: 0,
            reported_tokens: 0,
            differences: Vec::new(),
            removed_blocks: 0,
            resets: 0,
        }
    }

    pub(crate) fn add(&mut self, number: usize, drawn: &Drawn, verdict: &Verdict) {
        let Verdict { worker, predicted, reported, decision, answer } = verdict;
        let question = &drawn.request.question;
        let namespace = match (&question.lora, &question.salt) {
            (None, None) => "plain",
            (Some(_), None) => "adapter",
            (None, Some(_)) => "salt",
            (Some(_), Some(_)) => "adapter and salt",
        };
        self.by_sort.entry(drawn.sort).or_default().add(verdict);
        self.by_namespace.entry(namespace.to_owned()).or_default().add(verdict);
        *self.by_worker.entry(*worker).or_default() += 1;
        self.prompt_tokens += question.tokens.len() as u64;
        self.predicted_tokens += predicted;
        self.reported_tokens += reported;
        if predicted != reported {
            self.differences.push(format!(
                "request {number}, {}, {namespace}: predicted {predicted}, reported {reported} of {} tokens \
                 ({} generated); {decision}\n    tokens {:?}",
                drawn.sort,
                question.tokens.len(),
                answer.usage.completion_tokens,
                question.tokens,
            ));
        }
    }

    /// What the collector has counted of the engines' events.
    pub(crate) fn collected(&mut self, metrics: &Samples) {
        let removed = [("outcome", "removed")];
        self.removed_blocks = metrics.sum("warmroute_collector_event_blocks_total", &removed) as u64;
        self.resets = metrics.sum("warmroute_collector_resets_total", &[]) as u64;
    }

    pub(crate) fn differences(&self) -> usize {
        self.differences.len()
    }
}

// === impl Counts ===

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        self.requests += 1;
        self.equal += u64::from(verdict.predicted == verdict.reported);
        self.with_hits += u64::from(verdict.reported > 0);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traits { name, block_size, num_blocks, .. } = self.traits;
        writeln!(f, "{name}: {} replicas of {num_blocks} blocks of {block_size} tokens\n", self.replicas)?;
        writeln!(f, "{:20} {:>8} {:>20} {:>12}", "", "requests", "predicted = reported", "with hits")?;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, counts: &Counts| {
            writeln!(f, "{name:20} {:>8} {:>20} {:>12}", counts.requests, counts.equal, counts.with_hits)
        };
        for (sort, counts) in &self.by_sort {
            line(f, &sort.to_string(), counts)?;
        }
        for (namespace, counts) in &self.by_namespace {
            line(f, namespace, counts)?;
        }
        let mut all = Counts::default();
        for counts in self.by_sort.values() {
            all.requests += counts.requests;
            all.equal += counts.equal;
            all.with_hits += counts.with_hits;
        }
        line(f, "all", &all)?;
        writeln!(
            f,
            "\ntokens: {} in prompts, {} predicted to be cached, {} reported",
            self.prompt_tokens, self.predicted_tokens, self.reported_tokens
        )?;
        writeln!(f, "events: {} blocks removed, {} resets", self.removed_blocks, self.resets)?;
        let served = self.by_worker.iter().map(|(worker, requests)| match worker {
            Some(worker) => format!("{requests} steered to {worker}"),
            None => format!("{requests} left to Envoy"),
        });
        write!(f, "served: {}", served.collect::<Vec<_>>().join(", "))?;
        for difference in &self.differences {
            write!(f, "\n{difference}")?;
        }
        Ok(())
    }
}
