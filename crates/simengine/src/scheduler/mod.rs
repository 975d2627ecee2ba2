//! Who runs when: a discrete-event model of one engine. Pure: the caller brings the time.
//!
//! ```text
//!   submit -> waiting (FIFO) -> prefill device (one at a time) -> decode (all together) -> finished
//!                ^                                                   |
//!                '------------- preempted: no block is free ---------'
//! ```
//!
//! * A waiting request is admitted when a slot of `max_running` is free, the prefill device is free and its blocks fit.
//!   At that moment its blocks are looked up, taken and announced: vLLM announces what it schedules, not what it has
//!   computed. The head of the queue waits for its room; nobody overtakes it.
//! * The prefill device is busy for `prefill_per_token` x uncached tokens. The first output token comes `base` after
//!   that, and each further one `decode_per_token` after the one before. Prefills do not slow decodes down.
//! * A decode step that needs a block when none is free preempts the request that was admitted last: its blocks are
//!   freed, and it goes to the head of the queue, to be prefilled again with its output so far.
//! * All that happens at one moment is one step, and its cache events are one batch.
//!
//! Times are durations since the engine's start. A late call to [`Scheduler::advance`] changes no result: events happen
//! at the moment for which they were due.

mod job;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
mod time_model;

use std::collections::VecDeque;
use std::time::Duration;

use self::job::Job;
pub use self::job::Request;
pub use self::time_model::TimeModel;
use crate::cache::{BlockCache, CacheEvent, InUse};

/// Names a request in one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// How many requests the engine takes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that run at once.
    pub max_running: usize,
    /// Requests that wait besides.
    pub max_waiting: usize,
}

/// The scheduler of one engine.
#[derive(Debug)]
pub struct Scheduler {
    cache: BlockCache,
    time: TimeModel,
    limits: Limits,
    waiting: VecDeque<Job>,
    /// In the order of admission.
    running: Vec<Running>,
    /// Whether it takes no more requests.
    closed: bool,
    prefill_free_at: Duration,
    /// When the last step was.
    last_step: Duration,
    totals: Totals,
}

/// A request that holds blocks.
#[derive(Debug)]
struct Running {
    job: Job,
    /// When its next token comes.
    due: Duration,
}

/// What came out of one or more steps, in order.
#[derive(Debug, Default)]
pub struct Effects {
    /// The output tokens.
    pub outputs: Vec<Output>,
    /// The cache events, one batch for each step that had any.
    pub batches: Vec<Vec<CacheEvent>>,
}

/// One output token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Whose it is.
    pub id: RequestId,
    /// When it was due.
    pub at: Duration,
    /// The token id.
    pub token: u32,
    /// How many of the prompt's tokens were cached when it was admitted.
    pub cached_tokens: usize,
    /// Whether it is the request's last.
    pub finished: bool,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It would not fit into an empty cache.
    #[error("the request needs room for {tokens} tokens, and the engine has room for {room_tokens}")]
    TooLong {
        /// Prompt and output tokens that need a place.
        tokens: usize,
        /// The cache's size in tokens.
        room_tokens: usize,
    },
    /// Too many requests run and wait.
    #[error("the engine's queue is full")]
    QueueFull,
    /// The engine stops.
    #[error("the engine is shutting down")]
    Closed,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Prompt tokens that were looked up.
    pub queried_tokens: u64,
    /// Prompt tokens that were found.
    pub hit_tokens: u64,
    /// Output tokens.
    pub generated_tokens: u64,
    /// Requests that ran to their end.
    pub finished_requests: u64,
    /// Times that a request lost its blocks to another.
    pub preemptions: u64,
}

/// What the engine does at this moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests that hold blocks.
    pub running: usize,
    /// Requests that wait for a slot, the prefill device or blocks.
    pub waiting: usize,
    /// The part of the blocks that running requests hold, 0 to 1. Cached blocks that nobody holds do not count.
    pub held_share: f64,
}

// === impl Scheduler ===

impl Scheduler {
    /// A scheduler without requests.
    pub fn new(cache: BlockCache, time: TimeModel, limits: Limits) -> Self {
        Self {
            cache,
            time,
            limits,
            waiting: VecDeque::new(),
            running: Vec::new(),
            closed: false,
            prefill_free_at: Duration::ZERO,
            last_step: Duration::ZERO,
            totals: Totals::default(),
        }
    }

    /// Takes requests, all or none, and admits what can start at `now`. Call [`Self::advance`] to `now` before.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] of the first that cannot be taken.
    pub fn submit(&mut self, now: Duration, requests: Vec<Request>) -> Result<Effects, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        for request in &requests {
            self.check_length(request)?;
        }
        let in_system = self.running.len() + self.waiting.len() + requests.len();
        if in_system > self.limits.max_running.saturating_add(self.limits.max_waiting) {
            return Err(Refusal::QueueFull);
        }
        self.waiting.extend(requests.into_iter().map(Job::new));
        Ok(self.step_once(now))
    }

    /// Ends requests early and frees their blocks. Unknown ones (finished before) are ignored.
    pub fn cancel(&mut self, now: Duration, ids: &[RequestId]) -> Effects {
        self.waiting.retain(|job| !ids.contains(&job.id));
        for run in self.running.extract_if(.., |run| ids.contains(&run.job.id)) {
            let mut sequence = run.job.sequence;
            self.cache.release(&mut sequence);
        }
        self.step_once(now)
    }

    /// Ends all requests and takes no more.
    pub fn close(&mut self) {
        self.closed = true;
        self.waiting.clear();
        for run in &mut self.running {
            self.cache.release(&mut run.job.sequence);
        }
        self.running.clear();
    }

    /// Empties the cache. The event goes out with the next step.
    ///
    /// # Errors
    ///
    /// [`InUse`] while requests run.
    pub fn reset_cache(&mut self) -> Result<(), InUse> {
        self.cache.reset()
    }

    /// Does all that is due up to `now`.
    pub fn advance(&mut self, now: Duration) -> Effects {
        let mut effects = Effects::default();
        while let Some(at) = self.next_due().filter(|at| *at <= now) {
            self.step(at, &mut effects);
        }
        effects
    }

    /// When the next thing happens, unless a request comes first.
    pub fn next_due(&self) -> Option<Duration> {
        let token = self.running.iter().map(|run| run.due).min();
        // A head that did not fit at the last step fits no better before another step frees blocks.
        let can_admit = !self.waiting.is_empty() && self.running.len() < self.limits.max_running;
        let prefill = (can_admit && self.prefill_free_at > self.last_step).then_some(self.prefill_free_at);
        token.into_iter().chain(prefill).min()
    }

    /// What the engine does at this moment.
    pub fn load(&self) -> Load {
        let held_share = self.cache.held_blocks() as f64 / self.cache.total_blocks().max(1) as f64;
        Load { running: self.running.len(), waiting: self.waiting.len(), held_share }
    }

    /// The counters.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn check_length(&self, request: &Request) -> Result<(), Refusal> {
        let tokens = request.tokens_at_end();
        if self.cache.can_ever_fit(tokens) {
            return Ok(());
        }
        Err(Refusal::TooLong { tokens, room_tokens: self.cache.total_blocks() * self.cache.block_size() })
    }

    fn step_once(&mut self, at: Duration) -> Effects {
        let mut effects = Effects::default();
        self.step(at, &mut effects);
        effects
    }

    fn step(&mut self, at: Duration, effects: &mut Effects) {
        self.last_step = at;
        self.deliver_tokens(at, &mut effects.outputs);
        let preempted = self.start_decodes(at);
        // As in vLLM, a step that had to take blocks away gives none to newcomers.
        if !preempted {
            self.admit(at);
        }
        let events = self.cache.take_events();
        if !events.is_empty() {
            effects.batches.push(events);
        }
    }

    /// Hands out the tokens that are due, and ends the requests that are complete.
    fn deliver_tokens(&mut self, at: Duration, outputs: &mut Vec<Output>) {
        for run in self.running.iter_mut().filter(|run| run.due <= at) {
            let token = run.job.generate();
            self.totals.generated_tokens += 1;
            outputs.push(Output {
                id: run.job.id,
                at: run.due,
                token,
                cached_tokens: run.job.cached_tokens.unwrap_or(0),
                finished: run.job.is_finished(),
            });
        }
        for run in self.running.extract_if(.., |run| run.job.is_finished()) {
            let mut sequence = run.job.sequence;
            self.cache.release(&mut sequence);
            self.totals.finished_requests += 1;
        }
    }

    /// Starts the computation of the tokens that were just handed out. Returns whether a request was preempted.
    fn start_decodes(&mut self, at: Duration) -> bool {
        let mut preempted = false;
        let mut index = 0;
        while let Some(run) = self.running.get_mut(index) {
            match run.job.generated.last() {
                Some(token) if run.due <= at => {
                    if self.cache.append(&mut run.job.sequence, *token).is_err() {
                        self.preempt_last();
                        preempted = true;
                        continue; // Try again with the room that this made, unless it was this one.
                    }
                    run.due += self.time.decode_per_token;
                }
                _ => {}
            }
            index += 1;
        }
        preempted
    }

    fn preempt_last(&mut self) {
        let Some(Running { mut job, .. }) = self.running.pop() else { return };
        self.cache.release(&mut job.sequence);
        job.fold_output();
        self.totals.preemptions += 1;
        self.waiting.push_front(job);
    }

    fn admit(&mut self, at: Duration) {
        while self.prefill_free_at <= at && self.running.len() < self.limits.max_running {
            let Some(job) = self.waiting.front_mut() else { return };
            let Ok(cached_tokens) = self.cache.admit(&mut job.sequence) else { return };
            let Some(job) = self.waiting.pop_front() else { return };
            self.start_prefill(at, job, cached_tokens);
        }
    }

    fn start_prefill(&mut self, at: Duration, mut job: Job, cached_tokens: usize) {
        let tokens = job.sequence.tokens().len();
        if job.cached_tokens.is_none() {
            job.cached_tokens = Some(cached_tokens);
            self.totals.queried_tokens += tokens as u64;
            self.totals.hit_tokens += cached_tokens as u64;
        }
        self.prefill_free_at = at + self.time.prefill(tokens - cached_tokens);
        let due = self.prefill_free_at + self.time.base;
        self.running.push(Running { job, due });
    }
}
