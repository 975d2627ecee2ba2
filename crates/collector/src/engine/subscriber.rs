//! One rank's subscriber.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};
use warmroute_wire::Adapter;
use warmroute_wire::sequence::{Applied, Frame, Sequence, Step};

use super::backoff::Backoff;
use super::door::{Guest, Visit};
use super::replay::{Replay, Reply};
use super::socket::{EventSocket, Received};
use super::{News, Source, Stream, Update};
use crate::config::Endpoint;
use crate::metrics::WorkerMetrics;

/// Listens to one rank for ever.
#[derive(Debug)]
pub struct Subscriber {
    stream: Stream,
    listener: Listener,
}

/// All of a subscriber but its live stream.
#[derive(Debug)]
struct Listener {
    worker: u64,
    name: String,
    /// The live stream's name.
    events: String,
    replay_endpoint: Option<Endpoint>,
    replay_timeout: Duration,
    silence: Duration,
    updates: mpsc::Sender<Update>,
    metrics: WorkerMetrics,
    adapter: Adapter,
    sequence: Sequence,
    replay: Option<Replay>,
    /// When [`Sequence::retry`] is due.
    retry_at: Option<Instant>,
    replay_pauses: Backoff,
    settled: bool,
    /// A replay has worked on this connection, so that one that fails says something about the engine.
    replays_work: bool,
    /// A replay that checks whether the silence is the engine's.
    probing: bool,
}

/// A live stream that is known to bring something.
enum Live<'a> {
    Dialled(EventSocket),
    Came(&'a mut Guest),
}

/// What a live stream brings.
enum Brought {
    Batch(Frame),
    Undecodable,
    /// An engine behind the same door is gone: it may have been this one.
    Doubt,
    Lost,
}

/// The pool is gone: there is nobody to listen for.
struct PoolGone;

/// Why a connection is given up.
#[derive(Clone, Copy, Debug)]
enum Lost {
    /// The peer has closed it.
    Closed,
    /// It brings nothing where there is something.
    Dead,
}

// === impl Subscriber ===

impl Subscriber {
    /// A subscriber for the worker at the place `worker` in the pool, called `name` in logs.
    pub fn new(
        worker: u64,
        name: String,
        source: Source,
        updates: mpsc::Sender<Update>,
        metrics: WorkerMetrics,
    ) -> Self {
        let mut sequence = Sequence::new(source.replay.is_some(), source.engine.first_seq());
        if let Some(last) = source.last {
            sequence.resume(last);
        }
        let listener = Listener {
            worker,
            name,
            events: source.events.to_string(),
            sequence,
            replay_endpoint: source.replay,
            replay_timeout: source.replay_timeout,
            silence: source.silence,
            updates,
            metrics,
            adapter: Adapter::new(source.engine),
            replay: None,
            retry_at: None,
            replay_pauses: Backoff::new(Duration::from_millis(500), Duration::from_secs(60)),
            settled: false,
            replays_work: false,
            probing: false,
        };
        Self { stream: source.events, listener }
    }

    /// Listens until the pool is gone.
    pub async fn run(mut self) {
        // The pool that is gone is the only way out.
        let Err(PoolGone) = self.listener.listen_for_ever(&mut self.stream).await;
    }
}

// === impl Live ===

impl Live<'_> {
    /// Waits for what comes next. Nothing is lost where the future is dropped early.
    async fn receive(&mut self) -> Brought {
        match self {
            Self::Dialled(socket) => match socket.receive().await {
                Received::Batch { frame, .. } => Brought::Batch(frame),
                Received::Undecodable => Brought::Undecodable,
                Received::Lost => Brought::Lost,
            },
            Self::Came(guest) => match guest.receive().await {
                Visit::Batch(frame) => Brought::Batch(frame),
                Visit::Doubt => Brought::Doubt,
            },
        }
    }
}

// === impl Listener ===

impl Listener {
    async fn listen_for_ever(&mut self, stream: &mut Stream) -> Result<std::convert::Infallible, PoolGone> {
        loop {
            let mut live = self.connect(stream).await?;
            info!(worker = %self.name, events = %self.events, "connected to the engine's events");
            self.metrics.connected(true);
            self.tell(News::Connected(true)).await?;
            self.feed(Sequence::connected).await?;
            if !self.sequence.is_replaying() {
                self.settle().await?;
            }
            let lost = self.listen(&mut live).await?;
            warn!(worker = %self.name, events = %self.events, ?lost, "lost the connection to the engine's events");
            self.metrics.connected(false);
            self.tell(News::Connected(false)).await?;
        }
    }

    async fn connect<'a>(&mut self, stream: &'a mut Stream) -> Result<Live<'a>, PoolGone> {
        match stream {
            Stream::Dial(endpoint) => self.dial(endpoint).await.map(Live::Dialled),
            Stream::Door(guest) => {
                // Nobody knows when an engine will dial: it cannot be waited for.
                self.settle().await?;
                tokio::select! {
                    () = guest.arrived() => {}
                    () = self.updates.closed() => return Err(PoolGone),
                }
                Ok(Live::Came(guest))
            }
        }
    }

    async fn dial(&mut self, endpoint: &Endpoint) -> Result<EventSocket, PoolGone> {
        let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let mut complained = false;
        loop {
            match EventSocket::connect(endpoint).await {
                Ok(socket) => return Ok(socket),
                Err(error) if !complained => {
                    warn!(worker = %self.name, events = %self.events, %error, "cannot reach the engine's events; trying on");
                    complained = true;
                }
                Err(error) => debug!(worker = %self.name, %error, "cannot reach the engine's events"),
            }
            self.settle().await?;
            tokio::select! {
                () = tokio::time::sleep(pauses.next()) => {}
                () = self.updates.closed() => return Err(PoolGone),
            }
        }
    }

    /// Takes in what comes until the connection is lost.
    async fn listen(&mut self, live: &mut Live<'_>) -> Result<Lost, PoolGone> {
        self.replays_work = false;
        self.probing = false;
        let mut silent_at = Instant::now() + self.silence;
        loop {
            tokio::select! {
                brought = live.receive() => {
                    silent_at = Instant::now() + self.silence;
                    self.probing = false;
                    match brought {
                        Brought::Batch(frame) => {
                            self.metrics.frame();
                            self.feed(|sequence, steps| sequence.live(frame, steps)).await?;
                        }
                        Brought::Undecodable => self.undecodable("a live message"),
                        Brought::Doubt => self.feed(Sequence::connected).await?,
                        Brought::Lost => return Ok(Lost::Closed),
                    }
                }
                reply = next_reply(&mut self.replay) => {
                    if let Some(lost) = self.reply(reply).await? {
                        return Ok(lost);
                    }
                }
                () = sleep_until(self.retry_at.unwrap_or(silent_at)), if self.retry_at.is_some() => {
                    self.retry_at = None;
                    self.feed(Sequence::retry).await?;
                }
                () = sleep_until(silent_at) => {
                    silent_at = Instant::now() + self.silence;
                    if !self.sequence.is_replaying() {
                        self.feed(Sequence::probe).await?;
                        self.probing = self.sequence.is_replaying();
                    }
                }
                () = self.updates.closed() => return Err(PoolGone),
            }
        }
    }

    /// Takes in a replay's reply; says so if it shows the live connection to be dead.
    async fn reply(&mut self, reply: Reply) -> Result<Option<Lost>, PoolGone> {
        match reply {
            Reply::Batch(frame) => {
                self.metrics.frame();
                self.feed(|sequence, steps| sequence.replayed(&frame, steps)).await?;
                // What is asked for after a silence is what the live stream should have brought.
                let dead = std::mem::take(&mut self.probing);
                Ok(dead.then_some(Lost::Dead))
            }
            Reply::Ended(ended) => {
                self.replay = None;
                if let Err(error) = &ended {
                    warn!(worker = %self.name, %error, "replay failed");
                }
                self.feed(|sequence, steps| sequence.replay_ended(ended.is_ok(), steps)).await?;
                if !self.sequence.is_replaying() {
                    self.settle().await?;
                }
                let probing = std::mem::take(&mut self.probing);
                if ended.is_ok() {
                    self.replays_work = true;
                    if self.retry_at.is_none() {
                        self.replay_pauses.reset();
                    }
                }
                Ok((probing && ended.is_err() && self.replays_work).then_some(Lost::Dead))
            }
        }
    }

    /// Feeds the sequence and does what it says.
    async fn feed(&mut self, feed: impl FnOnce(&mut Sequence, &mut Vec<Step>)) -> Result<(), PoolGone> {
        let mut steps = Vec::new();
        feed(&mut self.sequence, &mut steps);
        for step in steps {
            match step {
                Step::Apply(applied, payload) => self.apply(applied, &payload).await?,
                Step::Resumed => {
                    info!(worker = %self.name, "the engine goes on where the snapshot ends");
                    self.tell(News::Resumed).await?;
                }
                Step::Reset(cause) => {
                    warn!(worker = %self.name, cause = cause.as_str(), "all that was known of the engine's cache is void");
                    self.metrics.reset(cause);
                    self.adapter.reset();
                    self.tell(News::Reset(cause)).await?;
                }
                Step::Replay { from } => {
                    let Some(endpoint) = self.replay_endpoint.clone() else { continue };
                    debug!(worker = %self.name, replay = %endpoint, from, "asking for a replay");
                    self.replay = Some(Replay::start(endpoint, from, self.replay_timeout));
                }
                Step::Gap(outcome) => self.metrics.gap(outcome),
                Step::Replayed(outcome) => self.metrics.replay(outcome),
                Step::RetryLater => self.retry_at = Some(Instant::now() + self.replay_pauses.next()),
            }
        }
        Ok(())
    }

    async fn apply(&mut self, applied: Applied, payload: &Bytes) -> Result<(), PoolGone> {
        match self.adapter.decode(payload) {
            Ok(batch) => {
                self.metrics.batch(&batch);
                if let Some(unsupported) = batch.unsupported {
                    return self.tell(News::Unsupported(unsupported)).await;
                }
                for bad in &batch.bad {
                    debug!(worker = %self.name, error = %bad, "an event was left out");
                }
                if batch.events.is_empty() {
                    return Ok(());
                }
                self.tell(News::Events(Some(applied), batch.events)).await
            }
            Err(error) => {
                self.undecodable(&error);
                Ok(())
            }
        }
    }

    fn undecodable(&self, what: &(impl std::fmt::Display + ?Sized)) {
        self.metrics.undecodable();
        debug!(worker = %self.name, %what, "a message was left out");
    }

    /// Tells once that all that can be known now is known.
    async fn settle(&mut self) -> Result<(), PoolGone> {
        if std::mem::replace(&mut self.settled, true) {
            return Ok(());
        }
        self.tell(News::Settled).await
    }

    async fn tell(&self, news: News) -> Result<(), PoolGone> {
        self.updates.send(Update { worker: self.worker, news }).await.map_err(|_| PoolGone)
    }
}

/// The next reply of the replay under way; never where there is none.
async fn next_reply(replay: &mut Option<Replay>) -> Reply {
    match replay {
        Some(replay) => replay.next().await,
        None => std::future::pending().await,
    }
}
