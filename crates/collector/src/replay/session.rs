//! The workers of a recording and the indexes over their caches.

use std::collections::HashMap;

use warmroute_index::event::Event;
use warmroute_index::{Index, Options as IndexOptions, WorkerId, WorkerIdentity};
use warmroute_routing::page::{Generation, PageBits};
use warmroute_wire::{Adapter, Engine, Message};

use super::answer::Answer;
use super::line::{Frames, Query};
use super::{Options, Summary};

const MAX_ORPHANS: usize = 1 << 20;
const PAGE_BITS: u8 = 12;

/// A replay in progress.
pub(super) struct Session {
    options: Options,
    workers: HashMap<WorkerIdentity, Worker>,
    /// An index for each block size: a recording may hold several engines' runs.
    indexes: Vec<Index>,
    summary: Summary,
}

/// One rank of a recorded engine.
struct Worker {
    adapter: Adapter,
    last: Option<u64>,
    /// Its index and its name there, once its block size is known.
    place: Option<(usize, WorkerId)>,
}

// === impl Session ===

impl Session {
    pub(super) fn new(options: Options) -> Self {
        Self { options, workers: HashMap::new(), indexes: Vec::new(), summary: Summary::default() }
    }

    pub(super) fn summary(&self) -> Summary {
        self.summary
    }

    /// Takes in one message.
    pub(super) fn feed(&mut self, line: &Frames) {
        self.summary.frames += 1;
        let Some(frames) = &line.frames else {
            self.summary.undecodable_frames += 1;
            return;
        };
        let (seq, payload) = match Message::parse(frames) {
            Ok(Message::Batch { seq, payload }) => (seq, payload),
            Ok(Message::End) => return,
            Err(_) => {
                self.summary.undecodable_frames += 1;
                return;
            }
        };
        let identity = WorkerIdentity { address: line.worker.clone(), rank: line.rank };
        let engine = self.options.engine;
        let worker = self.workers.entry(identity.clone()).or_insert_with(|| Worker::new(engine));
        if worker.last.is_some_and(|last| seq <= last) {
            self.summary.resets += 1;
            worker.adapter.reset();
            forget(&mut self.indexes, worker.place);
        }
        worker.last = Some(seq);
        match worker.adapter.decode(payload) {
            Ok(batch) => {
                self.summary.events += batch.len() as u64;
                self.summary.bad_events += batch.bad.len() as u64;
                if batch.unsupported.is_some() {
                    self.summary.unsupported += 1;
                    forget(&mut self.indexes, worker.place);
                }
                batch.events.iter().for_each(|event| self.apply(&identity, event));
            }
            Err(_) => self.summary.undecodable_frames += 1,
        }
    }

    fn apply(&mut self, identity: &WorkerIdentity, event: &Event) {
        let Some((index, id)) = self.place_of(identity, event) else {
            // Nothing is known of the worker yet, so there is nothing to take away from it.
            return;
        };
        let Some(index) = self.indexes.get_mut(index) else { return };
        if index.apply(id, event).is_err() {
            self.summary.bad_events += 1;
        }
        // Retired slots are purged at leisure; here is no leisure but this.
        index.purge(1024);
    }

    /// The worker's index; the one of its block size once an event tells it.
    fn place_of(&mut self, identity: &WorkerIdentity, event: &Event) -> Option<(usize, WorkerId)> {
        let worker = self.workers.get_mut(identity)?;
        if worker.place.is_some() {
            return worker.place;
        }
        let told = match event {
            Event::Stored(stored) if !stored.tokens.is_empty() => Some(stored.block_size),
            _ => None,
        };
        let block_size = self.options.block_size.or(told)?;
        let at = match self.indexes.iter().position(|index| index.block_size() == block_size) {
            Some(at) => at,
            None => {
                self.indexes.push(new_index(block_size)?);
                self.indexes.len() - 1
            }
        };
        let id = self.indexes.get_mut(at)?.add_worker(identity.clone()).ok()?;
        worker.place = Some((at, id));
        worker.place
    }

    /// Looks a prompt up in the index of the worker that the query names, or in the first.
    pub(super) fn answer(&mut self, query: Query) -> Answer {
        let named = query
            .worker
            .as_ref()
            .and_then(|name| self.workers.iter().find(|(identity, _)| identity.address == *name)?.1.place);
        let index = self.indexes.get_mut(named.map_or(0, |(index, _)| index));
        match index {
            Some(index) => Answer::look_up(query, index),
            None => Answer::unknown(query, self.options.block_size),
        }
    }
}

/// All that was known of a worker is void.
fn forget(indexes: &mut [Index], place: Option<(usize, WorkerId)>) {
    if let Some((index, id)) = place
        && let Some(index) = indexes.get_mut(index)
    {
        index.reset_worker(id);
    }
}

fn new_index(block_size: u32) -> Option<Index> {
    let options = IndexOptions { block_size, page_bits: PageBits::new(PAGE_BITS)?, max_orphans: MAX_ORPHANS };
    Some(Index::new(options, Generation(1)))
}

// === impl Worker ===

impl Worker {
    fn new(engine: Engine) -> Self {
        Self { adapter: Adapter::new(engine), last: None, place: None }
    }
}
