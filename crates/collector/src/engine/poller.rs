//! Polling: one URL that tells the events of all ranks of an engine, each of them once.
//!
//! An answer is lost where it does not arrive whole, and so are its events: nothing would bring them again. Then, and where
//! the numbers of a rank's events show a gap, all that is known of the rank is void. The numbers tell a restart, too: an
//! engine that was merely out of reach goes on where it was.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};
use warmroute_wire::sequence::{Frame, ResetCause, Sequence, Step};
use warmroute_wire::trtllm::polled::{self, Reader};

use super::backoff::Backoff;
use super::{MAX_PAYLOAD_BYTES, News, Update};
use crate::config::PollUrl;
use crate::http::{self, HttpError, Limits};
use crate::metrics::WorkerMetrics;

/// Between an answer and the next question: how old an event may be.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Pauses while the engine does not answer.
const MOST_PAUSE: Duration = Duration::from_secs(5);
/// An answer may take so long: releases that wait for events wait 2 s after each.
const LIMITS: Limits = Limits { time: Duration::from_secs(30), bytes: MAX_PAYLOAD_BYTES };
/// Failures in a row after which the connection counts as lost.
const FAILURES: u32 = 2;

/// Polls one engine for ever.
#[derive(Debug)]
pub struct Poller {
    url: PollUrl,
    name: String,
    ranks: Vec<Rank>,
    updates: mpsc::Sender<Update>,
    connected: bool,
    failures: u32,
    settled: bool,
    /// The log has told of a rank that is not configured.
    complained: bool,
}

/// One rank of the engine.
#[derive(Debug)]
struct Rank {
    worker: u64,
    metrics: WorkerMetrics,
    sequence: Sequence,
    reader: Reader,
}

/// The pool is gone: there is nobody to poll for.
struct PoolGone;

/// Why there are no events.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("{0}")]
    Answer(#[from] warmroute_wire::PayloadError),
}

// === impl Poller ===

impl Poller {
    /// A poller for the worker whose ranks have these places in the pool, called `name` in logs; `block_size` is the pool's.
    pub fn new(
        url: PollUrl,
        name: String,
        ranks: impl IntoIterator<Item = (u64, WorkerMetrics)>,
        block_size: u32,
        updates: mpsc::Sender<Update>,
    ) -> Self {
        let rank = |(worker, metrics)| Rank {
            worker,
            metrics,
            sequence: Sequence::new(false, 0),
            reader: Reader::new(block_size),
        };
        let ranks = ranks.into_iter().map(rank).collect();
        Self { url, name, ranks, updates, connected: false, failures: 0, settled: false, complained: false }
    }

    /// Polls until the pool is gone.
    pub async fn run(mut self) {
        let mut pauses = Backoff::new(POLL_INTERVAL, MOST_PAUSE);
        loop {
            let pause = match self.poll().await {
                Ok(true) => {
                    pauses.reset();
                    POLL_INTERVAL
                }
                Ok(false) => pauses.next(),
                Err(PoolGone) => return,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.updates.closed() => return,
            }
        }
    }

    /// Asks once. Says whether there was an answer.
    async fn poll(&mut self) -> Result<bool, PoolGone> {
        let asked = self.ask().await;
        let is_answer = asked.is_ok();
        match asked {
            Ok(events) => {
                self.answered().await?;
                for event in events {
                    self.take(event).await?;
                }
            }
            Err(error) => self.failed(&error).await?,
        }
        if !std::mem::replace(&mut self.settled, true) {
            self.tell_all(&News::Settled).await?;
        }
        Ok(is_answer)
    }

    async fn ask(&self) -> Result<Vec<Result<polled::Numbered, warmroute_wire::BadEvent>>, PollError> {
        match http::ask(Method::POST, self.url.authority(), self.url.path(), LIMITS).await? {
            (StatusCode::OK, answer) => Ok(polled::split(&answer)?),
            (status, _) => Err(PollError::Status(status)),
        }
    }

    async fn answered(&mut self) -> Result<(), PoolGone> {
        self.failures = 0;
        if std::mem::replace(&mut self.connected, true) {
            return Ok(());
        }
        info!(worker = %self.name, url = %self.url, "the engine answers");
        self.tell_connected(true).await
    }

    async fn failed(&mut self, error: &PollError) -> Result<(), PoolGone> {
        if self.failures == 0 {
            warn!(worker = %self.name, url = %self.url, %error, "cannot poll the engine's events; trying on");
        } else {
            debug!(worker = %self.name, %error, "cannot poll the engine's events");
        }
        self.failures = self.failures.saturating_add(1);
        match error {
            PollError::Http(HttpError::Connect(_) | HttpError::Request(_)) | PollError::Status(_) => {}
            // The engine may have told events that have not arrived: it will not tell them again.
            PollError::Http(_) | PollError::Answer(_) => {
                self.ranks.iter().for_each(|rank| rank.metrics.undecodable());
                for at in 0..self.ranks.len() {
                    self.feed(at, Sequence::connected).await?;
                }
            }
        }
        if self.failures == FAILURES && std::mem::replace(&mut self.connected, false) {
            self.tell_connected(false).await?;
        }
        Ok(())
    }

    /// Takes in one event of an answer.
    async fn take(
        &mut self,
        event: Result<polled::Numbered, warmroute_wire::BadEvent>,
    ) -> Result<(), PoolGone> {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                // Whose it is, is not known. Its number is missing now: its rank is reset as for any gap.
                debug!(worker = %self.name, %error, "an event was left out");
                self.ranks.first().iter().for_each(|rank| rank.metrics.undecodable());
                return Ok(());
            }
        };
        let at = usize::from(event.rank);
        let Some(rank) = self.ranks.get(at) else {
            if !std::mem::replace(&mut self.complained, true) {
                let (rank, ranks) = (event.rank, self.ranks.len());
                warn!(worker = %self.name, rank, ranks, "an event of a rank beyond `data_parallel_size`: left out");
            }
            return Ok(());
        };
        rank.metrics.frame();
        self.feed(at, |sequence, steps| sequence.live(Frame { seq: event.id, payload: event.event }, steps))
            .await
    }

    /// Feeds a rank's sequence and does what it says.
    async fn feed(
        &mut self,
        at: usize,
        feed: impl FnOnce(&mut Sequence, &mut Vec<Step>),
    ) -> Result<(), PoolGone> {
        let Some(rank) = self.ranks.get_mut(at) else { return Ok(()) };
        let mut steps = Vec::new();
        feed(&mut rank.sequence, &mut steps);
        for step in steps {
            let news = match step {
                Step::Apply(_, event) => rank.apply(&self.name, &event),
                Step::Reset(cause) => Some(rank.reset(&self.name, cause)),
                Step::Gap(outcome) => {
                    rank.metrics.gap(outcome);
                    None
                }
                // Nothing is replayed here.
                Step::Resumed | Step::Replay { .. } | Step::Replayed(_) | Step::RetryLater => None,
            };
            if let Some(news) = news {
                let update = Update { worker: rank.worker, news };
                self.updates.send(update).await.map_err(|_| PoolGone)?;
            }
        }
        Ok(())
    }

    async fn tell_connected(&self, connected: bool) -> Result<(), PoolGone> {
        self.ranks.iter().for_each(|rank| rank.metrics.connected(connected));
        self.tell_all(&News::Connected(connected)).await
    }

    async fn tell_all(&self, news: &News) -> Result<(), PoolGone> {
        for rank in &self.ranks {
            let update = Update { worker: rank.worker, news: news.clone() };
            self.updates.send(update).await.map_err(|_| PoolGone)?;
        }
        Ok(())
    }
}

// === impl Rank ===

impl Rank {
    fn apply(&mut self, name: &str, event: &Bytes) -> Option<News> {
        let batch = self.reader.read(event);
        self.metrics.batch(&batch);
        for bad in &batch.bad {
            debug!(worker = %name, error = %bad, "an event was left out");
        }
        (!batch.events.is_empty()).then_some(News::Events(None, batch.events))
    }

    fn reset(&mut self, name: &str, cause: ResetCause) -> News {
        warn!(worker = %name, cause = cause.as_str(), "all that was known of the engine's cache is void");
        self.metrics.reset(cause);
        match cause {
            ResetCause::Restart => self.reader.forget(),
            ResetCause::Gap | ResetCause::Reconnect | ResetCause::Recovery => self.reader.forget_blocks(),
        }
        News::Reset(cause)
    }
}
