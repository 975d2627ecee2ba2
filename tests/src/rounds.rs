//! Engines and the collector killed and started again, round after round, under load: after each round, what is predicted of
//! every worker must be what it reports again, within five seconds.
//!
//! A round kills one engine, the collector, or both, and starts them again; the order of these two or four things is
//! random, and so is how each dies. Meanwhile clients go on sending. Then the clients wait, and each engine is asked a few
//! of their prompts: first the collector and the filter say how much of it the engine has, then the engine does. Where one
//! reports otherwise, all are asked anew, about other prompts, until the time is over.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep, timeout_at};

use crate::collector::Question;
use crate::exactness::Examiner;
use crate::workspace::ScratchDir;
use crate::{Client, Dice, Stack, client};

/// Within which everything must be right again.
pub const LIMIT: Duration = Duration::from_secs(5);

const ENGINES: usize = 4;
const BLOCK_SIZE: u32 = 16;
/// Few blocks, so that some are evicted all the time.
const ENGINE_FLAGS: [&str; 4] = ["--num-blocks", "384", "--prefill-us-per-token", "20"];
/// Beginnings that the clients' prompts share.
const PREFIXES: u64 = 12;
/// Prompts that each engine is asked.
const PROMPTS: usize = 2;
/// Prompts that are remembered to be asked.
const REMEMBERED: usize = 64;
/// Between two snapshots of the collector's.
const SNAPSHOT_MS: u64 = 300;
/// Between two of a round's kills and starts, in milliseconds: time for the load to meet what is so.
const PAUSE_MS: std::ops::Range<u64> = 20..400;

/// How the rounds went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Rounds after which everything was right in time.
    pub rounds: usize,
    /// From the last start of each round until every worker was as predicted.
    pub recoveries: Vec<Duration>,
    /// Rounds in which not all was right the first time that everyone was asked.
    pub asked_again: usize,
    /// Times that something was killed.
    pub kills: usize,
    /// Workers that a new collector took over from the old one's snapshot, each time.
    pub resumed: f64,
    /// Workers that it could not: their engine had started anew, too, or did not answer.
    pub void: f64,
    /// Requests of the load.
    pub requests: usize,
    /// Those that no whole answer came for: an engine that dies takes its answers with it.
    pub lost: usize,
}

/// What may be killed.
#[derive(Clone, Copy, Debug)]
enum Part {
    Engine(usize),
    Collector,
}

/// The load's clients and whoever stops them.
struct Load {
    url: String,
    /// Clients hold it for reading while they wait for an answer.
    gate: RwLock<()>,
    asked: Mutex<VecDeque<Vec<u32>>>,
    counts: Mutex<(usize, usize)>,
}

/// Runs so many rounds on a stack of simulated engines. The same `seed` draws the same rounds.
///
/// # Errors
/// When a part does not start, or not all is right within [`LIMIT`] after a round.
pub async fn run(name: &str, rounds: usize, seed: u64) -> Result<Outcome> {
    let snapshots = ScratchDir::new(&format!("{name}-snapshots"))?;
    let directory = snapshots.path().to_path_buf();
    let keep_snapshots = move |config: &mut Value| {
        let snapshots = json!({ "directory": directory, "interval_ms": SNAPSHOT_MS });
        config.as_object_mut().context("no configuration")?.insert("snapshots".to_owned(), snapshots);
        Ok(())
    };
    let mut stack = Stack::builder(name)
        .engines(ENGINES)
        .block_size(BLOCK_SIZE)
        .engine_flags(ENGINE_FLAGS)
        .edit_collector(keep_snapshots)
        // What is shown here is what the index says.
        .filter(json!({ "recent_routes_ms": 0 }))
        .start()
        .await?;
    stack.wait_until_steering().await?;
    let load = Load::new(stack.url());
    let dice = Dice::new(seed);
    let mut outcome = Outcome::default();
    tokio::select! {
        done = all(&mut stack, &load, &mut outcome, rounds, dice.fork(0)) => done?,
        () = load.send(&dice) => {}
    }
    (outcome.requests, outcome.lost) = *load.counts.lock().unwrap_or_else(PoisonError::into_inner);
    stack.stop().await?;
    snapshots.remove()?;
    Ok(outcome)
}

async fn all(
    stack: &mut Stack,
    load: &Load,
    outcome: &mut Outcome,
    rounds: usize,
    mut dice: Dice,
) -> Result<()> {
    for round in 0..rounds {
        let what = disturb(stack, outcome, &mut dice).await?;
        let recovered = recover(stack, load, outcome, &mut dice).await;
        let recovery = recovered.with_context(|| format!("round {round}: {what:?}"))?;
        outcome.recoveries.push(recovery);
        outcome.rounds += 1;
        if what.iter().any(|part| matches!(part, Part::Collector)) {
            let counted = stack.collector.metrics().await?;
            let workers =
                |outcome| counted.sum("warmroute_collector_snapshot_workers_total", &[("outcome", outcome)]);
            outcome.resumed += workers("resumed");
            outcome.void += workers("void");
        }
    }
    Ok(())
}

/// Kills and starts again; answers what was killed.
async fn disturb(stack: &mut Stack, outcome: &mut Outcome, dice: &mut Dice) -> Result<Vec<Part>> {
    let engine = Part::Engine(dice.within(0..ENGINES as u64) as usize);
    let parts = match dice.within(0..6) {
        0 => vec![engine],
        1 => vec![Part::Collector],
        _ => vec![engine, Part::Collector],
    };
    // What is still to be done with each part: first it is killed, then it is started.
    let mut left: Vec<(Part, bool)> = parts.iter().map(|part| (*part, true)).collect();
    while !left.is_empty() {
        sleep(Duration::from_millis(dice.within(PAUSE_MS))).await;
        let place = dice.within(0..left.len() as u64) as usize;
        let (part, alive) = left.remove(place);
        if alive {
            outcome.kills += 1;
            kill(stack, part, dice.within(0..2) == 0).await?;
            left.push((part, false));
        } else {
            start(stack, part).await?;
        }
    }
    Ok(parts)
}

async fn kill(stack: &mut Stack, part: Part, hard: bool) -> Result<()> {
    match (part, hard) {
        (Part::Engine(number), true) => stack.engine_mut(number)?.kill_hard(),
        (Part::Engine(number), false) => stack.engine_mut(number)?.stop().await.map(drop),
        (Part::Collector, true) => stack.collector.kill_hard(),
        (Part::Collector, false) => stack.collector.stop().await.map(drop),
    }
}

async fn start(stack: &mut Stack, part: Part) -> Result<()> {
    match part {
        Part::Engine(number) => stack.engine_mut(number)?.restart().await,
        Part::Collector => stack.collector.restart().await,
    }
}

/// Waits until every worker is as predicted; answers how long that took.
async fn recover(stack: &Stack, load: &Load, outcome: &mut Outcome, dice: &mut Dice) -> Result<Duration> {
    let begun = Instant::now();
    let end = begun + LIMIT;
    // The load stops once nothing of it is under way.
    let _gate = load.gate.write().await;
    let examiner = Examiner::new(stack.url(), &stack.collector, "sim", BLOCK_SIZE)?;
    let mut last = anyhow::anyhow!("nobody was asked");
    for pass in 0.. {
        match timeout_at(end, ask_everyone(stack, &examiner, load, dice)).await {
            Ok(Ok(())) => {
                outcome.asked_again += usize::from(pass > 0);
                return Ok(begun.elapsed());
            }
            Ok(Err(error)) => last = error,
            Err(_) => break,
        }
    }
    Err(last.context(format!("not everything is right {LIMIT:?} later")))
}

async fn ask_everyone(stack: &Stack, examiner: &Examiner<'_>, load: &Load, dice: &mut Dice) -> Result<()> {
    examiner.quiet().await?;
    for engine in stack.engines() {
        for _ in 0..PROMPTS {
            let question = Question { tokens: load.some_prompt(dice), ..Question::default() };
            examiner.ask_worker(engine.address(), &question).await?;
        }
    }
    Ok(())
}

// === impl Load ===

impl Load {
    fn new(url: String) -> Self {
        let asked = VecDeque::from([client::tokens(0, 256)]);
        Self { url, gate: RwLock::new(()), asked: Mutex::new(asked), counts: Mutex::new((0, 0)) }
    }

    /// Three clients send for ever.
    async fn send(&self, dice: &Dice) {
        let client = |number| self.client(dice.fork(number));
        tokio::join!(client(1), client(2), client(3));
    }

    async fn client(&self, mut dice: Dice) {
        loop {
            let prompt = draw(&mut dice);
            let open = self.gate.read().await;
            // A new connection each time, since one that an engine's death has closed says nothing about the next.
            let answered = match Client::http1(self.url.clone()) {
                Ok(client) => {
                    client.complete(&prompt, 2).await.is_ok_and(|answer| answer.status.is_success())
                }
                Err(_) => false,
            };
            drop(open);
            self.note(prompt, answered);
        }
    }

    fn note(&self, prompt: Vec<u32>, answered: bool) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.0 += 1;
        counts.1 += usize::from(!answered);
        drop(counts);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push_back(prompt);
        if asked.len() > REMEMBERED {
            asked.pop_front();
        }
    }

    fn some_prompt(&self, dice: &mut Dice) -> Vec<u32> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get(dice.within(0..asked.len() as u64) as usize).cloned().unwrap_or_default()
    }
}

/// One of few beginnings, then one of some more ways to go on: prompts come again, in parts or whole.
fn draw(dice: &mut Dice) -> Vec<u32> {
    let prefix = dice.within(0..PREFIXES);
    let mut prompt = client::tokens(prefix, 160 + 16 * prefix as usize);
    let way = dice.within(0..6);
    prompt.extend(client::tokens(1_000 + 10 * prefix + way, dice.within(0..200) as usize));
    prompt
}

// === impl Outcome ===

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut recoveries = self.recoveries.clone();
        recoveries.sort_unstable();
        let at = |share: usize| {
            recoveries.get((recoveries.len() * share / 100).min(recoveries.len().saturating_sub(1)))
        };
        let seconds = |share| at(share).map_or(0.0, Duration::as_secs_f64);
        writeln!(f, "rounds                             {}", self.rounds)?;
        writeln!(f, "kills                              {}", self.kills)?;
        writeln!(
            f,
            "predicted equals reported again    after {:.2} s (half), {:.2} s (most)",
            seconds(50),
            seconds(100)
        )?;
        let (resumed, void) = (self.resumed, self.void);
        writeln!(
            f,
            "workers of a new collector         {resumed} went on from the snapshot, {void} could not"
        )?;
        writeln!(f, "rounds in which all were asked again {}", self.asked_again)?;
        write!(f, "requests meanwhile                 {}, of which {} were lost", self.requests, self.lost)
    }
}
