//! The task that owns a pool's index.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};
use warmroute_index::event::Event;
use warmroute_index::{EventError, Index, Options};
use warmroute_routing::feed::Request;
use warmroute_routing::page::PageBits;
use warmroute_routing::pool::Pool as PublishedPool;

use super::generations::Generations;
use super::roster::Roster;
use super::{PoolStats, View};
use crate::config::PoolConfig;
use crate::engine::{News, Update};
use crate::feed::{self, Answer};
use crate::metrics::{PoolMetrics, WorkerMetrics};

/// Updates that are applied before questions are looked at again.
const UPDATES_AT_ONCE: usize = 64;
/// Blocks of retired slots that are purged before anything else is looked at again.
const PURGED_AT_ONCE: usize = 1024;
/// Records that a page is meant to hold at first.
const BLOCKS_A_PAGE: u32 = 10;

/// A question to the owner.
#[derive(Debug)]
pub(super) enum Ask {
    /// What a publisher should have next.
    Feed(Request, oneshot::Sender<Answer>),
    /// How large everything is.
    Stats(oneshot::Sender<PoolStats>),
}

/// The owner of a pool's index.
#[derive(Debug)]
pub(super) struct Owner {
    name: String,
    base_models: Vec<String>,
    index: Index,
    roster: Roster,
    generations: Generations,
    inbox: mpsc::Receiver<Update>,
    asked: mpsc::Receiver<Ask>,
    view: watch::Sender<View>,
    metrics: PoolMetrics,
    workers: Arc<[WorkerMetrics]>,
    ready: bool,
    ready_at: Instant,
    /// The workers that have not settled.
    missing: Arc<[String]>,
    /// Retired slots may still hold blocks.
    purging: bool,
}

// === impl Owner ===

impl Owner {
    pub(super) fn new(
        config: &PoolConfig,
        ready_timeout: Duration,
        inbox: mpsc::Receiver<Update>,
        asked: mpsc::Receiver<Ask>,
        metrics: PoolMetrics,
        workers: Arc<[WorkerMetrics]>,
    ) -> Self {
        let mut generations = Generations::default();
        let options = Options {
            block_size: config.block_size,
            page_bits: first_page_bits(config.expected_blocks),
            max_orphans: config.max_orphans,
        };
        let mut index = Index::new(options, generations.next());
        let roster = Roster::new(config, &mut index);
        let missing = roster.missing();
        let view = View {
            generation: index.generation(),
            pages: index.page_bits().page_count(),
            version: index.version(),
            ready: false,
            missing: Arc::clone(&missing),
        };
        Self {
            name: config.name.clone(),
            base_models: config.base_models.clone(),
            index,
            roster,
            generations,
            inbox,
            asked,
            view: watch::Sender::new(view),
            metrics,
            workers,
            ready: false,
            ready_at: Instant::now() + ready_timeout,
            missing,
            purging: false,
        }
    }

    pub(super) fn view(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// Runs until nobody asks any more.
    pub(super) async fn run(mut self) {
        let mut updates = Vec::with_capacity(UPDATES_AT_ONCE);
        self.look_around();
        loop {
            tokio::select! {
                biased;
                ask = self.asked.recv() => match ask {
                    Some(ask) => self.answer(ask),
                    None => return,
                },
                count = self.inbox.recv_many(&mut updates, UPDATES_AT_ONCE) => {
                    if count == 0 {
                        return;
                    }
                    updates.drain(..).for_each(|update| self.apply(update));
                    self.look_around();
                }
                () = sleep_until(self.ready_at), if !self.ready => {
                    warn!(pool = %self.name, missing = ?self.missing, "ready without some workers");
                    self.ready = true;
                    self.look_around();
                }
                () = tokio::task::yield_now(), if self.purging => {
                    self.purging = self.index.purge(PURGED_AT_ONCE) == PURGED_AT_ONCE;
                    self.look_around();
                }
            }
        }
    }

    fn apply(&mut self, update: Update) {
        let Some(id) = self.roster.get(update.worker).map(|row| row.id) else { return };
        match update.news {
            News::Events(events) => {
                for event in &events {
                    let result = self.index.apply(id, event);
                    if let Some(metrics) = self.workers.get(update.worker) {
                        metrics.event(event, &result);
                    }
                    if let Err(error) = result {
                        self.complain(update.worker, &error);
                    }
                    self.purging |= matches!(event, Event::Cleared);
                }
            }
            News::Reset(_) => {
                self.index.reset_worker(id);
                self.purging = true;
            }
            News::Connected(connected) => {
                if self.roster.connected(update.worker, connected) {
                    self.index.touch();
                }
            }
            News::Settled => {
                self.roster.settled(update.worker);
                self.missing = self.roster.missing();
            }
        }
    }

    /// Tells of an event that was refused; loudly once for each worker, since all of its events may be so.
    fn complain(&mut self, place: usize, error: &EventError) {
        let worker = self.roster.name(place);
        if self.roster.first_complaint(place) {
            warn!(pool = %self.name, worker, %error, "an event was refused; is the pool's block size the engine's?");
        } else {
            debug!(pool = %self.name, worker, %error, "an event was refused");
        }
    }

    /// After a change: is the pool ready, is it time for a new generation, who is to be told?
    fn look_around(&mut self) {
        if !self.ready && self.missing.is_empty() {
            info!(pool = %self.name, "ready");
            self.ready = true;
        }
        self.begin_generation_if_due();
        let view = View {
            generation: self.index.generation(),
            pages: self.index.page_bits().page_count(),
            version: self.index.version(),
            ready: self.ready,
            missing: Arc::clone(&self.missing),
        };
        self.view.send_if_modified(|seen| {
            let changed = *seen != view;
            *seen = view;
            changed
        });
    }

    fn begin_generation_if_due(&mut self) {
        let more = self.index.wants_pages();
        if more.is_none() && !self.index.needs_generation() {
            return;
        }
        let page_bits = more.unwrap_or_else(|| self.index.page_bits());
        let generation = self.generations.next();
        info!(pool = %self.name, generation = generation.0, pages = page_bits.page_count(), "a new generation begins");
        self.index.begin_generation(generation, page_bits);
        self.metrics.generation();
        self.purging = false;
    }

    fn answer(&mut self, ask: Ask) {
        // A reply that nobody waits for any more is no loss.
        match ask {
            Ask::Feed(request, reply) => {
                let pool = self.published();
                let _ = reply.send(feed::answer(&mut self.index, &pool, &request));
            }
            Ask::Stats(reply) => {
                let _ = reply.send(self.stats());
            }
        }
    }

    fn published(&self) -> PublishedPool {
        PublishedPool {
            generation: self.index.generation(),
            page_bits: self.index.page_bits(),
            block_size: self.index.block_size(),
            base_models: self.base_models.clone(),
            namespaced: self.index.is_namespaced(),
            workers: self.roster.published(&self.index),
        }
    }

    fn stats(&self) -> PoolStats {
        PoolStats {
            index: self.index.stats(),
            pages: self.index.page_bits().page_count(),
            version: self.index.version(),
            queue_length: self.inbox.len(),
            workers_up: self.roster.up(),
            ready: self.ready,
        }
    }
}

/// The pages that so many blocks need.
fn first_page_bits(expected_blocks: u32) -> PageBits {
    let pages = expected_blocks.div_ceil(BLOCKS_A_PAGE).max(1);
    let bits = pages.next_power_of_two().trailing_zeros() as u8;
    PageBits::new(bits.min(PageBits::MAX)).unwrap_or_else(|| first_page_bits(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pages_fit_the_expected_blocks() {
        let bits = |blocks| first_page_bits(blocks).bits();
        assert_eq!((bits(1), bits(10), bits(11), bits(65_536), bits(u32::MAX)), (0, 0, 1, 13, 24));
    }
}
