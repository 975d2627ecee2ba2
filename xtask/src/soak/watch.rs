//! Looking at it while it runs: memory every second, the counters and a line of progress every ten.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::{Instant, MissedTickBehavior, interval};
use warmroute_e2e::{Client, Samples};

use super::memory::{Lives, Series, resident_kib};
use super::request::Kind;
use super::shared::Shared;
use crate::demo::figures::Decisions;

/// Looks between two lines.
const LOOKS: u32 = 10;

/// Lines in a minute.
const LINES: u32 = 6;

/// What was seen.
#[derive(Default)]
pub(crate) struct Watched {
    pub(crate) envoy: Series,
    pub(crate) collector: Lives,
    /// Requests steered in each whole minute.
    pub(crate) steered_per_minute: Vec<u64>,
}

/// What the plugin and Envoy count.
pub(crate) struct Counted {
    /// Second and third attempts, on another engine.
    pub(crate) retries: u64,
    pub(crate) decisions: Decisions,
    pub(crate) observed: u64,
    pub(crate) publisher_answers: u64,
    pub(crate) publisher_failures: u64,
    pub(crate) publisher_copies: u64,
}

/// Watches until the end of the run.
pub(crate) async fn watch(shared: &Shared, envoy: u32, admin: &Client) -> Result<Watched> {
    let mut watched = Watched::default();
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    second.tick().await;
    let mut before = Counted::ask(admin).await?.decisions.steered;
    for look in 1.. {
        second.tick().await;
        let now = Instant::now();
        if now >= shared.end {
            break;
        }
        watched.envoy.add(now, resident_kib(envoy));
        watched.collector.add(now, shared.collector());
        if look % LOOKS != 0 {
            continue;
        }
        let counted = Counted::ask(admin).await?;
        if look % (LOOKS * LINES) == 0 {
            watched.steered_per_minute.push(counted.decisions.steered.saturating_sub(before));
            before = counted.decisions.steered;
        }
        watched.progress(shared, &counted);
    }
    Ok(watched)
}

// === impl Watched ===

impl Watched {
    fn progress(&self, shared: &Shared, counted: &Counted) {
        let tally = shared.tally().sum(|kind| kind != Kind::Plain.as_str());
        eprintln!(
            "{:>7.1} s: {} requests, {} failed, {} cut; {} steered; Envoy {:.0} MiB, collector {:.0} MiB",
            shared.start.elapsed().as_secs_f32(),
            tally.all(),
            tally.failed,
            tally.cut,
            counted.decisions.steered,
            self.envoy.last_mib(),
            self.collector.last_mib(),
        );
    }
}

// === impl Counted ===

impl Counted {
    /// Asks Envoy. It must answer: its admin interface does not depend on what is disturbed.
    pub(crate) async fn ask(admin: &Client) -> Result<Self> {
        let page = admin.get("/stats/prometheus").send().await.context("Envoy does not tell its counters")?;
        let samples = Samples::parse(&page.text().await?)?;
        let sum = |name: &str, labels: &[(&str, &str)]| samples.sum(name, labels) as u64;
        Ok(Self {
            retries: sum("envoy_cluster_upstream_rq_retry", &[("envoy_cluster_name", "workers")]),
            decisions: Decisions::of(&samples),
            observed: sum("warmroute_requests_total", &[("outcome", "observed")]),
            publisher_answers: sum("warmroute_publisher_answers_total", &[]),
            publisher_failures: sum("warmroute_publisher_failures_total", &[]),
            publisher_copies: sum("warmroute_publisher_copies_total", &[]),
        })
    }
}
