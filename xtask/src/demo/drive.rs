//! Sending a plan's requests: several at a time, each conversation's turns one after the other.

use std::io;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use warmroute_e2e::{Answer, Client};

use super::plan::{Conversation, Plan};

/// Requests at a time.
const CONCURRENCY: usize = 12;
/// Tokens in an answer.
const ANSWER_TOKENS: u32 = 32;

/// One request and what came of it.
pub(crate) struct Outcome {
    /// The prompt's token IDs.
    pub(crate) prompt: Vec<u32>,
    /// The answer, unless there was none.
    pub(crate) answer: Result<Answer>,
}

/// A conversation as it goes.
struct Dialogue {
    /// Everything said so far.
    history: Vec<u32>,
    /// The turns still to come, last first.
    rest: Vec<Vec<u32>>,
}

/// Sends all of `plan`; the outcomes come in the plan's order. Shows its progress under the name `way`, if it has one.
pub(crate) async fn through(client: &Client, plan: &Plan, way: Option<&str>) -> Result<Vec<Outcome>> {
    let dialogues: Vec<_> =
        plan.conversations.iter().map(|said| Arc::new(Mutex::new(Dialogue::new(said)))).collect();
    let places = Arc::new(Semaphore::new(CONCURRENCY));
    let mut running = JoinSet::new();
    for (position, number) in plan.order.iter().enumerate() {
        let dialogue = Arc::clone(dialogues.get(*number).context("a turn of no conversation")?);
        let place = Arc::clone(&places).acquire_owned().await?;
        progress(way, position, plan.order.len());
        running.spawn(turn(client.clone(), dialogue, position, place));
    }
    let mut outcomes = running.join_all().await;
    progress(way, plan.order.len(), plan.order.len());
    outcomes.sort_unstable_by_key(|(position, _)| *position);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// The next turn of `dialogue`, once the one before is over.
async fn turn(
    client: Client,
    dialogue: Arc<Mutex<Dialogue>>,
    position: usize,
    _place: OwnedSemaphorePermit,
) -> (usize, Outcome) {
    let mut dialogue = dialogue.lock().await;
    let said = dialogue.rest.pop().unwrap_or_default();
    dialogue.history.extend(said);
    let prompt = dialogue.history.clone();
    let answer = client.stream(&prompt, ANSWER_TOKENS).await;
    let outcome = Outcome { prompt, answer };
    dialogue.history.extend(outcome.answer_tokens());
    (position, outcome)
}

fn progress(way: Option<&str>, done: usize, all: usize) {
    let Some(way) = way else { return };
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r{way}: {done} of {all} requests");
        let _ = if done == all { writeln!(terminal) } else { terminal.flush() };
    } else if done == 0 {
        let _ = writeln!(terminal, "{way}: {all} requests");
    }
}

// === impl Outcome ===

impl Outcome {
    /// Whether an engine answered.
    pub(crate) fn succeeded(&self) -> bool {
        self.good().is_some()
    }

    /// The answer of an engine.
    pub(crate) fn good(&self) -> Option<&Answer> {
        self.answer.as_ref().ok().filter(|answer| answer.status.is_success())
    }

    /// The answer's token IDs. The simulated engine generates letters, whose bytes are their IDs.
    pub(crate) fn answer_tokens(&self) -> Vec<u32> {
        match self.good() {
            Some(answer) if answer.token_ids.is_empty() => answer.text.bytes().map(u32::from).collect(),
            Some(answer) => answer.token_ids.clone(),
            None => Vec::new(),
        }
    }
}

// === impl Dialogue ===

impl Dialogue {
    fn new(conversation: &Conversation) -> Self {
        let rest = conversation.turns.iter().rev().cloned().collect();
        Self { history: conversation.system.clone(), rest }
    }
}
