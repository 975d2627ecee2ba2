//! What goes wrong, as the dice fall.
//!
//! Every 5 to 15 seconds one more thing is disturbed, and each disturbance but one is undone some seconds later, so that
//! several may overlap. What never overlaps: at most one engine is down at a time (with every engine down nobody would
//! serve), and a collector that is down is not disturbed again. In the last third of a run the collector is frozen and not
//! ended, so that it lives long enough for its memory to be judged.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use warmroute_e2e::{Engine, Stack};

use super::shared::Shared;
use warmroute_e2e::Dice;

/// Between two disturbances, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 5_000..15_000;

/// From a disturbance to its end, in milliseconds: well below the 30 seconds after which an index is not used.
const HOLD_MS: std::ops::Range<u64> = 200..8_000;

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Disturbance {
    /// SIGKILL, then a new start.
    CollectorKilled,
    /// SIGTERM, then a new start.
    CollectorStopped,
    /// SIGSTOP, then SIGCONT.
    CollectorFrozen,
    /// SIGKILL, then a new start with an empty cache.
    EngineKilled,
    /// SIGTERM, then a new start with an empty cache.
    EngineStopped,
    /// New listeners with `mode: observe`, then with `mode: steer`.
    Observing,
    /// New listeners with the other of 2 and 3 `max_destinations`.
    OtherDestinations,
}

/// How a disturbance ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undo {
    StartCollector,
    ThawCollector,
    StartEngine(usize),
    Steer,
}

/// The disturbances of a run.
pub(crate) struct Disturber<'a> {
    stack: &'a mut Stack,
    shared: &'a Shared,
    dice: Dice,
    undos: Vec<(Instant, Undo)>,
    destinations: u32,
    counts: BTreeMap<Disturbance, u64>,
}

/// How often each is drawn.
const SHARES: [(Disturbance, usize); 7] = [
    (Disturbance::CollectorKilled, 1),
    (Disturbance::CollectorStopped, 1),
    (Disturbance::CollectorFrozen, 2),
    (Disturbance::EngineKilled, 2),
    (Disturbance::EngineStopped, 2),
    (Disturbance::Observing, 2),
    (Disturbance::OtherDestinations, 2),
];

// === impl Disturber ===

impl<'a> Disturber<'a> {
    pub(crate) fn new(stack: &'a mut Stack, shared: &'a Shared, dice: Dice) -> Self {
        shared.set_collector(Some(stack.collector.process_mut().id()));
        Self { stack, shared, dice, undos: Vec::new(), destinations: 2, counts: BTreeMap::new() }
    }

    /// Disturbs until the end of the run, and mends everything then. Answers how often what was done.
    pub(crate) async fn run(mut self) -> Result<BTreeMap<&'static str, u64>> {
        let mut next = self.pause();
        loop {
            let undo = self.undos.iter().map(|(at, _)| *at).min();
            sleep_until(undo.unwrap_or(next).min(next).min(self.shared.end)).await;
            let now = Instant::now();
            if now >= self.shared.end {
                break;
            }
            self.undo_until(now).await?;
            if now >= next {
                self.disturb().await?;
                next = self.pause();
            }
        }
        let all = self.undos.iter().map(|(at, _)| *at).max();
        self.undo_until(all.unwrap_or(self.shared.end)).await?;
        Ok(self.counts.into_iter().map(|(what, count)| (what.as_str(), count)).collect())
    }

    fn pause(&mut self) -> Instant {
        Instant::now() + Duration::from_millis(self.dice.within(PAUSE_MS))
    }

    /// Does one thing that may be done now.
    async fn disturb(&mut self) -> Result<()> {
        let may = SHARES.into_iter().filter(|(what, _)| self.may(*what));
        let may: Vec<_> = may.flat_map(|(what, share)| std::iter::repeat_n(what, share)).collect();
        let Some(what) = self.dice.pick(&may).copied() else { return Ok(()) };
        *self.counts.entry(what).or_default() += 1;
        self.tell(what.as_str());
        let undo = match what {
            Disturbance::CollectorKilled => {
                self.shared.set_collector(None);
                self.stack.collector.kill_hard()?;
                Some(Undo::StartCollector)
            }
            Disturbance::CollectorStopped => {
                self.shared.set_collector(None);
                self.stack.collector.stop().await?;
                Some(Undo::StartCollector)
            }
            Disturbance::CollectorFrozen => {
                self.stack.collector.process_mut().freeze()?;
                Some(Undo::ThawCollector)
            }
            Disturbance::EngineKilled => {
                let (number, engine) = self.engine()?;
                engine.kill_hard()?;
                Some(Undo::StartEngine(number))
            }
            Disturbance::EngineStopped => {
                let (number, engine) = self.engine()?;
                engine.stop().await?;
                Some(Undo::StartEngine(number))
            }
            Disturbance::Observing => {
                self.reload(json!({ "mode": "observe" })).await?;
                Some(Undo::Steer)
            }
            Disturbance::OtherDestinations => {
                self.destinations = 5 - self.destinations;
                self.reload(json!({ "max_destinations": self.destinations })).await?;
                None
            }
        };
        let until = Instant::now() + Duration::from_millis(self.dice.within(HOLD_MS));
        self.undos.extend(undo.map(|undo| (until, undo)));
        Ok(())
    }

    fn may(&self, what: Disturbance) -> bool {
        let is_pending = |of: fn(Undo) -> bool| self.undos.iter().any(|(_, undo)| of(*undo));
        let collector_is_well =
            || !is_pending(|undo| matches!(undo, Undo::StartCollector | Undo::ThawCollector));
        match what {
            Disturbance::CollectorKilled | Disturbance::CollectorStopped => {
                collector_is_well() && !self.is_last_third()
            }
            Disturbance::CollectorFrozen => collector_is_well(),
            Disturbance::EngineKilled | Disturbance::EngineStopped => {
                !is_pending(|undo| matches!(undo, Undo::StartEngine(_)))
            }
            Disturbance::Observing => !is_pending(|undo| undo == Undo::Steer),
            Disturbance::OtherDestinations => true,
        }
    }

    fn is_last_third(&self) -> bool {
        let Shared { start, end, .. } = self.shared;
        start.elapsed() > (*end - *start) * 2 / 3
    }

    /// An engine that is about to go down. Its name is told first.
    fn engine(&mut self) -> Result<(usize, &mut Engine)> {
        let number = self.dice.within(0..self.stack.engines().len() as u64) as usize;
        let engine = self.stack.engine_mut(number)?;
        self.shared.engine_goes_down(engine.address().to_string());
        Ok((number, engine))
    }

    /// Undoes what is to be undone by `now`.
    async fn undo_until(&mut self, now: Instant) -> Result<()> {
        while let Some(place) = self.undos.iter().position(|(at, _)| *at <= now) {
            let undo = self.undos.swap_remove(place).1;
            self.tell(undo.as_str());
            match undo {
                Undo::StartCollector => {
                    self.stack.collector.restart().await.context("the collector does not start again")?;
                    self.shared.set_collector(Some(self.stack.collector.process_mut().id()));
                }
                Undo::ThawCollector => self.stack.collector.process_mut().thaw()?,
                Undo::StartEngine(number) => {
                    let engine = self.stack.engine_mut(number)?;
                    engine.restart().await.context("an engine does not start again")?;
                }
                Undo::Steer => self.reload(json!({ "mode": "steer" })).await?,
            }
        }
        Ok(())
    }

    /// For whoever wonders what failed requests have met.
    fn tell(&self, what: &str) {
        eprintln!("{:>7.1} s: {what}", self.shared.start.elapsed().as_secs_f32());
    }

    async fn reload(&mut self, patch: Value) -> Result<()> {
        let edited = self.stack.reload(|bootstrap| bootstrap.patch_filter(&patch)).await;
        edited.with_context(|| format!("Envoy does not take {patch}"))
    }
}

// === impl Disturbance ===

impl Disturbance {
    fn as_str(self) -> &'static str {
        match self {
            Self::CollectorKilled => "collector_killed",
            Self::CollectorStopped => "collector_stopped",
            Self::CollectorFrozen => "collector_frozen",
            Self::EngineKilled => "engine_killed",
            Self::EngineStopped => "engine_stopped",
            Self::Observing => "observing",
            Self::OtherDestinations => "other_destinations",
        }
    }
}

// === impl Undo ===

impl Undo {
    fn as_str(self) -> &'static str {
        match self {
            Self::StartCollector => "collector starts again",
            Self::ThawCollector => "collector goes on",
            Self::StartEngine(_) => "engine starts again",
            Self::Steer => "steering again",
        }
    }
}
