//! One workload, through one router, to one fleet.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use warmroute_simengine::cache::CacheEvent;
use warmroute_simengine::scheduler::{Effects, Output};

use crate::fleet::{Fleet, Hardware};
use crate::gateway::Gateway;
use crate::router::{Arrival, Router};
use crate::workload::Workload;

/// What is fixed while rules are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// The engines.
    pub(crate) hardware: Hardware,
    /// From an engine's event to a lookup that sees it.
    pub(crate) event_delay: Duration,
    /// How long a route counts as cached.
    pub(crate) route_life: Duration,
}

/// What became of the requests.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Time to the first token, in the requests' order.
    pub(crate) ttft: Vec<Duration>,
    /// Prompt tokens.
    pub(crate) prompt_tokens: u64,
    /// Those of them that were cached.
    pub(crate) cached_tokens: u64,
    /// By worker: the time that requests were in its hands, summed over them.
    pub(crate) in_hand: Vec<Duration>,
    /// Until the last token.
    pub(crate) span: Duration,
}

struct Simulation<'a> {
    workload: &'a Workload,
    event_delay: Duration,
    fleet: Fleet,
    gateway: Gateway,
    router: &'a mut dyn Router,
    /// The events on their way: when they arrive, and whose they are.
    events: VecDeque<(Duration, usize, Vec<CacheEvent>)>,
    sent: Vec<Sent>,
    outcome: Outcome,
}

/// A request that was sent.
#[derive(Clone, Copy)]
struct Sent {
    at: Duration,
    worker: usize,
    answered: bool,
}

/// Runs a workload at `rate` times its own rate.
pub(crate) fn run(
    workload: &Workload,
    rate: f64,
    setting: &Setting,
    router: &mut dyn Router,
) -> Result<Outcome> {
    let workers = setting.hardware.workers;
    let mut simulation = Simulation {
        workload,
        event_delay: setting.event_delay,
        fleet: Fleet::new(&setting.hardware, workload.block_size)?,
        gateway: Gateway::new(workers, workload.block_size, setting.route_life)?,
        router,
        events: VecDeque::new(),
        sent: Vec::with_capacity(workload.requests.len()),
        outcome: Outcome { in_hand: vec![Duration::ZERO; workers], ..Outcome::default() },
    };
    while simulation.step(rate)? {}
    Ok(simulation.outcome)
}

// === impl Simulation ===

impl Simulation<'_> {
    /// Does what comes next: what engines do comes before events of the same moment, and those before requests. False:
    /// nothing is left.
    fn step(&mut self, rate: f64) -> Result<bool> {
        let arrival = self.workload.requests.get(self.sent.len()).map(|request| request.at.div_f64(rate));
        let event = self.events.front().map(|(at, ..)| *at);
        let before = |at: Duration, other: Option<Duration>| other.is_none_or(|other| at <= other);
        match self.fleet.next_due() {
            Some((due, worker)) if before(due, event) && before(due, arrival) => {
                let effects = self.fleet.advance(worker, due);
                self.take_in(worker, due, effects);
            }
            _ if event.is_some_and(|at| before(at, arrival)) => {
                if let Some((_, worker, events)) = self.events.pop_front() {
                    self.gateway.apply(worker, &events)?;
                }
            }
            _ => match arrival {
                Some(now) => self.send(now)?,
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    fn send(&mut self, now: Duration) -> Result<()> {
        let id = self.sent.len();
        let Some(request) = self.workload.requests.get(id) else { return Ok(()) };
        let arrival = Arrival { id: id as u64, request, now };
        let choice = self.router.route(&arrival, &mut self.gateway);
        let worker = choice.worker;
        self.gateway.book(id as u64, worker, request, choice.cached_blocks, now);
        self.sent.push(Sent { at: now, worker, answered: false });
        self.outcome.ttft.push(Duration::ZERO);
        self.outcome.prompt_tokens += request.prompt.tokens;
        let effects = self.fleet.submit(worker, now, id as u64, request)?;
        self.take_in(worker, now, effects);
        Ok(())
    }

    fn take_in(&mut self, worker: usize, now: Duration, effects: Effects) {
        for output in effects.outputs {
            self.output(&output);
        }
        for batch in effects.batches {
            self.router.stored(worker, &batch);
            self.events.push_back((now + self.event_delay, worker, batch));
        }
    }

    fn output(&mut self, output: &Output) {
        let id = output.id.0;
        let Some(sent) = usize::try_from(id).ok().and_then(|id| self.sent.get_mut(id)) else { return };
        if !sent.answered {
            sent.answered = true;
            if let Some(ttft) = self.outcome.ttft.get_mut(id as usize) {
                *ttft = output.at - sent.at;
            }
            self.outcome.cached_tokens += output.cached_tokens as u64;
            self.gateway.prefill_done(id, output.at);
            self.router.answered(id, output.at);
        }
        if output.finished {
            self.gateway.release(id);
            self.router.finished(id);
            if let Some(in_hand) = self.outcome.in_hand.get_mut(sent.worker) {
                *in_hand += output.at - sent.at;
            }
            self.outcome.span = self.outcome.span.max(output.at);
        }
    }
}
