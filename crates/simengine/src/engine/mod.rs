//! The running engine: the pure scheduler, a clock, and those who wait for its results.
//!
//! All state is behind one mutex, which is held for one step's work and never across an `await`. Whoever holds it first
//! brings the scheduler up to the present, so events and tokens leave in the order of model time. A driver task sleeps
//! until the next thing is due.

mod driver;
mod ticket;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;

pub(crate) use self::ticket::{Ticket, Update};
use crate::cache::{InUse, Namespace};
use crate::events::Publisher;
use crate::scheduler::{Effects, Load, Output, Refusal, Request, RequestId, Scheduler, Totals};

/// One engine. Shared by the HTTP handlers and the driver.
#[derive(Debug)]
pub(crate) struct Engine {
    state: Mutex<State>,
    /// Wakes the driver when what is due next has changed.
    changed: Notify,
    started: Instant,
}

/// A prompt to run.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    pub(crate) namespace: Namespace,
    pub(crate) max_tokens: usize,
}

/// How results come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Each token when it is there.
    Streamed,
    /// All tokens at the end.
    AtEnd,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    publisher: Option<Publisher>,
    receivers: HashMap<RequestId, Receiver>,
    next_id: u64,
}

/// Who waits for a request's output.
#[derive(Debug)]
struct Receiver {
    choice: usize,
    delivery: Delivery,
    /// Tokens that have not been delivered.
    tokens: Vec<u32>,
    updates: mpsc::Sender<Update>,
}

// === impl Engine ===

impl Engine {
    /// An engine whose model time starts now. [`Self::drive`] must run for it to do anything.
    pub(crate) fn new(scheduler: Scheduler, publisher: Option<Publisher>) -> Arc<Self> {
        let state = State { scheduler, publisher, receivers: HashMap::new(), next_id: 0 };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new(), started: Instant::now() })
    }

    /// Takes prompts, all or none. Dropping the ticket cancels them.
    pub(crate) fn submit(
        self: &Arc<Self>,
        prompts: Vec<Prompt>,
        delivery: Delivery,
    ) -> Result<Ticket, Refusal> {
        // Room for every update there can be, so that a slow client never holds the engine up.
        let updates_at_most =
            prompts.iter().fold(1, |sum: usize, prompt| sum.saturating_add(prompt.max_tokens));
        let (updates, receiver) = mpsc::channel(updates_at_most.min(Semaphore::MAX_PERMITS));
        let (mut state, now) = self.lock();
        let requests = state.requests(prompts);
        let ids: Vec<RequestId> = requests.iter().map(|request| request.id).collect();
        let effects = state.scheduler.submit(now, requests)?;
        for (choice, id) in ids.iter().enumerate() {
            let receiver = Receiver { choice, delivery, tokens: Vec::new(), updates: updates.clone() };
            state.receivers.insert(*id, receiver);
        }
        state.apply(effects);
        drop(state);
        self.changed.notify_one();
        Ok(Ticket::new(self.clone(), ids, receiver))
    }

    /// Forgets all cached blocks; see [`Scheduler::reset_cache`].
    pub(crate) fn reset_cache(&self) -> Result<(), InUse> {
        self.lock().0.scheduler.reset_cache()
    }

    pub(crate) fn load(&self) -> (Load, Totals) {
        let (state, _) = self.lock();
        (state.scheduler.load(), state.scheduler.totals())
    }

    /// Ends every request without a result, takes no more, and lets go of the publisher.
    pub(crate) fn shut_down(&self) {
        let (mut state, _) = self.lock();
        state.scheduler.close();
        state.receivers.clear();
        state.publisher = None;
    }

    fn cancel(&self, ids: &[RequestId]) {
        let (mut state, now) = self.lock();
        let mut known = false;
        for id in ids {
            known |= state.receivers.remove(id).is_some();
        }
        if known {
            let effects = state.scheduler.cancel(now, ids);
            state.apply(effects);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// The state, brought up to the present, and the present.
    fn lock(&self) -> (MutexGuard<'_, State>, Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: the scheduler's time must not go back.
        let now = self.started.elapsed();
        let effects = state.scheduler.advance(now);
        state.apply(effects);
        (state, now)
    }
}

// === impl State ===

impl State {
    fn requests(&mut self, prompts: Vec<Prompt>) -> Vec<Request> {
        let request = |prompt: Prompt| {
            let id = RequestId(self.next_id);
            self.next_id += 1;
            Request { id, prompt: prompt.tokens, namespace: prompt.namespace, max_tokens: prompt.max_tokens }
        };
        prompts.into_iter().map(request).collect()
    }

    fn apply(&mut self, effects: Effects) {
        if let Some(publisher) = &mut self.publisher {
            for batch in &effects.batches {
                publisher.publish(batch);
            }
        }
        for output in effects.outputs {
            self.deliver(output);
        }
    }

    fn deliver(&mut self, output: Output) {
        let Some(receiver) = self.receivers.get_mut(&output.id) else { return };
        receiver.tokens.push(output.token);
        if receiver.delivery == Delivery::Streamed || output.finished {
            let update = Update {
                choice: receiver.choice,
                tokens: std::mem::take(&mut receiver.tokens),
                cached_tokens: output.cached_tokens,
                finished: output.finished,
            };
            // It fails only when the ticket is gone, which cancels the request anyway.
            let _gone = receiver.updates.try_send(update);
        }
        if output.finished {
            self.receivers.remove(&output.id);
        }
    }
}
