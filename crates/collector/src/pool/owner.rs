//! The task that owns a pool's index.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};
use warmroute_index::event::Event;
use warmroute_index::{EventError, Index, IndexError, Options, WorkerId, WorkerIdentity, WorkerStats};
use warmroute_routing::feed::Request;
use warmroute_routing::hash::Namespace;
use warmroute_routing::page::PageBits;
use warmroute_routing::pool::Pool as PublishedPool;
use warmroute_wire::{Engine, Unsupported};

use super::crew::Joining;
use super::generations::Generations;
use super::reports::{self, Census, Listed};
use super::roster::Roster;
use super::{PoolStats, Refusal, View};
use crate::config::PoolConfig;
use crate::engine::{News, Update};
use crate::feed::{self, Answer};
use crate::inspect::{Explanation, Question};
use crate::metrics::PoolMetrics;
use crate::snapshot::SavedWorker;

/// Updates that are applied before questions are looked at again.
const UPDATES_AT_ONCE: usize = 64;
/// Blocks of retired slots that are purged before anything else is looked at again.
const PURGED_AT_ONCE: usize = 1024;
/// Records that a page is meant to hold at first.
const BLOCKS_A_PAGE: u32 = 15;

/// A question to the owner.
#[derive(Debug)]
pub(super) enum Ask {
    /// What a publisher should have next.
    Feed(Request, oneshot::Sender<Answer>),
    /// Workers have left, and others come.
    /// `is_complete`: these are all who are known to be there.
    Change { leaving: Vec<u64>, joining: Vec<Joining>, is_complete: bool, done: oneshot::Sender<()> },
    /// What a prompt would find.
    Explain(Question, oneshot::Sender<Explanation>),
    /// Every worker, without its blocks.
    List(oneshot::Sender<Vec<Listed>>),
    /// The blocks of some pages.
    Count(Range<u32>, oneshot::Sender<Census>),
    /// What the index knows of a worker; nothing of one that has left.
    WorkerStats(u64, oneshot::Sender<WorkerStats>),
    /// The places of all workers.
    Places(oneshot::Sender<Vec<u64>>),
    /// What is known of a worker.
    Save(u64, oneshot::Sender<Option<SavedWorker>>),
    /// How large everything is.
    Stats(oneshot::Sender<PoolStats>),
}

/// The owner of a pool's index.
#[derive(Debug)]
pub(super) struct Owner {
    name: String,
    engine: Engine,
    base_models: Vec<String>,
    index: Index,
    roster: Roster,
    generations: Generations,
    inbox: mpsc::Receiver<Update>,
    asked: mpsc::Receiver<Ask>,
    view: watch::Sender<View>,
    metrics: PoolMetrics,
    ready: bool,
    ready_at: Instant,
    /// The workers that have not settled.
    missing: Arc<[String]>,
    /// It is known who the workers are.
    is_complete: bool,
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
        joining: Vec<Joining>,
    ) -> Self {
        let mut generations = Generations::default();
        let options = Options {
            block_size: config.block_size,
            page_bits: first_page_bits(config.expected_blocks),
            max_orphans: config.max_orphans,
        };
        let index = Index::new(options, generations.next());
        let missing = Arc::default();
        let view = View {
            generation: index.generation(),
            pages: index.page_bits().page_count(),
            version: index.version(),
            ready: false,
            missing: Arc::clone(&missing),
            refused: Arc::default(),
        };
        let mut owner = Self {
            name: config.name.clone(),
            engine: config.engine,
            base_models: config.base_models.clone(),
            index,
            roster: Roster::default(),
            generations,
            inbox,
            asked,
            view: watch::Sender::new(view),
            metrics,
            ready: false,
            ready_at: Instant::now() + ready_timeout,
            missing,
            is_complete: config.discover.is_none(),
            purging: false,
        };
        owner.join(joining);
        owner.missing = owner.roster.missing();
        owner
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
        // What comes of a worker that has left is nobody's.
        let Some(row) = self.roster.get_mut(update.worker) else { return };
        match update.news {
            News::Events(applied, events) => {
                row.last = applied;
                for event in &events {
                    self.apply_event(update.worker, event);
                }
            }
            News::Resumed => self.resume(update.worker),
            News::Reset(_) => {
                row.reset();
                self.index.reset_worker(row.id);
                self.purging = true;
            }
            News::Connected(connected) => {
                if row.note(|row| row.connected = Some(connected)) {
                    self.index.touch();
                }
            }
            News::Healthy(healthy) => {
                if row.note(|row| row.healthy = Some(healthy)) {
                    self.index.touch();
                }
            }
            News::Unsupported(unsupported) => self.refuse(update.worker, unsupported),
            News::Settled => {
                row.settle();
                self.missing = self.roster.missing();
            }
        }
    }

    /// What a snapshot says of a worker holds.
    fn resume(&mut self, place: u64) {
        let Some(row) = self.roster.get_mut(place) else { return };
        let Some(saved) = row.saved.take() else { return };
        let restored = self.index.restore_worker(row.id, &saved.cache);
        row.metrics.snapshot(restored.is_ok());
        match restored {
            Ok(()) => {
                row.last = Some(saved.last);
                row.has_fitted();
            }
            // It was looked through when it was read. What is known is too little then, and never too much.
            Err(error) => warn!(pool = %self.name, worker = row.name(), %error, "a snapshot is left out"),
        }
    }

    /// What is known of a worker, for a snapshot; none where that is nothing, or not all of it can be kept.
    fn save(&self, place: u64) -> Option<SavedWorker> {
        let row = self.roster.get(place)?;
        if let Some(saved) = &row.saved {
            return Some(saved.clone());
        }
        if row.refusal.is_some() || row.untold_adapters {
            return None;
        }
        let (last, cache) = (row.last?, self.index.save_worker(row.id)?.into());
        Some(SavedWorker { address: row.address, rank: row.rank, last, cache })
    }

    fn apply_event(&mut self, place: u64, event: &Event) {
        let Some(row) = self.roster.get_mut(place) else { return };
        if matches!(row.refusal, Some(Refusal::Unsupported(_))) {
            return;
        }
        if let Event::Stored(stored) = event {
            row.untold_adapters |= stored.lora.is_some() && !self.engine.removals_tell_adapters();
        }
        let result = self.index.apply(row.id, event);
        row.metrics.event(event, &result);
        self.purging |= matches!(event, Event::Cleared);
        match result {
            Ok(applied) if applied.renamed > 0 && self.engine.names_are_chained() => {
                self.refuse(place, Unsupported::UnchainedHashes);
            }
            Ok(_) => {
                if matches!(event, Event::Stored(stored) if !stored.tokens.is_empty()) {
                    row.has_fitted();
                }
            }
            Err(EventError::BlockSize { expected, actual }) if !row.fits => {
                self.does_not_fit(place, expected, actual);
            }
            Err(error) if row.first_complaint() => {
                warn!(pool = %self.name, worker = row.name(), %error, "an event was refused");
            }
            Err(error) => debug!(pool = %self.name, worker = row.name(), %error, "an event was refused"),
        }
    }

    /// A worker's blocks are of another size than the pool's.
    fn does_not_fit(&mut self, place: u64, expected: u32, actual: u32) {
        let Some(row) = self.roster.get_mut(place) else { return };
        if row.refuse(Some(Refusal::BlockSize { expected, actual })) {
            warn!(
                pool = %self.name, worker = row.name(), expected, actual,
                "the engine's blocks are of another size than the pool's: none of them is indexed"
            );
        }
    }

    /// Nothing of a worker is indexed until it starts anew.
    fn refuse(&mut self, place: u64, unsupported: Unsupported) {
        let Some(row) = self.roster.get_mut(place) else { return };
        if row.refuse(Some(Refusal::Unsupported(unsupported))) {
            warn!(pool = %self.name, worker = row.name(), %unsupported, "the worker is not indexed");
            self.index.reset_worker(row.id);
            self.purging = true;
        }
    }

    /// Takes in workers. Where the generation has no slot left for them, a new one begins.
    fn join(&mut self, joining: Vec<Joining>) {
        for rank in joining {
            let identity =
                || WorkerIdentity { address: rank.address.to_string(), rank: u32::from(rank.rank) };
            let mut id = self.index.add_worker(identity());
            if id == Err(IndexError::SlotsExhausted) {
                self.begin_generation(self.index.page_bits());
                id = self.index.add_worker(identity());
            }
            match id {
                Ok(id) => self.take_in(rank, id),
                Err(error) => warn!(pool = %self.name, worker = ?identity(), %error, "a worker is left out"),
            }
        }
    }

    fn take_in(&mut self, rank: Joining, id: WorkerId) {
        let (place, told) = (rank.place, rank.block_size);
        self.roster.join(rank, id);
        if let Some(actual) = told.filter(|size| *size != self.index.block_size()) {
            self.does_not_fit(place, self.index.block_size(), actual);
        }
    }

    /// Forgets workers.
    fn leave(&mut self, leaving: &[u64]) {
        for place in leaving {
            if let Some(row) = self.roster.leave(*place) {
                self.index.remove_worker(row.id);
                self.purging = true;
            }
        }
    }

    /// After a change: is the pool ready, is it time for a new generation, who is to be told?
    fn look_around(&mut self) {
        if !self.ready && self.is_complete && self.missing.is_empty() {
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
            refused: self.roster.refused(),
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
        self.begin_generation(more.unwrap_or_else(|| self.index.page_bits()));
    }

    fn begin_generation(&mut self, page_bits: PageBits) {
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
            Ask::Change { leaving, joining, is_complete, done } => {
                self.is_complete |= is_complete;
                self.leave(&leaving);
                self.join(joining);
                self.missing = self.roster.missing();
                self.look_around();
                let _ = done.send(());
            }
            Ask::Explain(question, reply) => {
                let lora = question.lora.as_deref();
                let adapter = lora.filter(|name| self.base_models.iter().all(|base| base != name));
                let namespace = Namespace::new(adapter, question.salt.as_deref());
                let explanation =
                    reports::explain(&self.name, &question, namespace, &self.roster, &mut self.index);
                let _ = reply.send(explanation);
            }
            Ask::List(reply) => {
                let _ = reply.send(reports::list(&self.roster, &self.index));
            }
            Ask::Count(pages, reply) => {
                let _ = reply.send(Census::take(&mut self.index, pages));
            }
            Ask::WorkerStats(place, reply) => {
                let row = self.roster.get(place);
                let stats = row.and_then(|row| self.index.worker_stats(row.id));
                let _ = reply.send(stats.unwrap_or_default());
            }
            Ask::Places(reply) => {
                let _ = reply.send(self.roster.places());
            }
            Ask::Save(place, reply) => {
                let _ = reply.send(self.save(place));
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
        assert_eq!((bits(1), bits(15), bits(16), bits(65_536), bits(u32::MAX)), (0, 0, 1, 13, 24));
    }
}
