//! What a router knows: as much as warmroute's filter does.

mod books;
mod index;
mod routes;

use std::time::Duration;

use anyhow::Result;
use warmroute_routing::choose::{Candidate, Limits, Load, Policy, Question, Selection, Selector};
use warmroute_routing::lookup::Depths;
use warmroute_simengine::cache::CacheEvent;

use self::books::Books;
pub(crate) use self::index::LiveIndex;
pub(crate) use self::routes::RecentRoutes;
use crate::workload::Request;

/// Pages that a lookup may read: the filter's default.
const MAX_PAGE_READS: u32 = 64;

/// The index by the engines' events as far as they have come, and the books of the requests that were sent.
pub(crate) struct Gateway {
    index: LiveIndex,
    books: Books,
    routes: RecentRoutes,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

// === impl Gateway ===

impl Gateway {
    pub(crate) fn new(workers: usize, block_size: u32, route_life: Duration) -> Result<Self> {
        Ok(Self {
            index: LiveIndex::new(workers, block_size)?,
            books: Books::new(workers),
            routes: RecentRoutes::new(route_life),
        })
    }

    pub(crate) fn workers(&self) -> usize {
        self.books.loads().len()
    }

    pub(crate) fn loads(&self) -> &[Load] {
        self.books.loads()
    }

    /// Takes in what an engine has told.
    pub(crate) fn apply(&mut self, worker: usize, events: &[CacheEvent]) -> Result<()> {
        self.index.apply(worker, events)
    }

    /// What each worker holds of a prompt, by the index alone.
    pub(crate) fn depths(&mut self, request: &Request) -> Vec<Depths> {
        self.index.depths(&request.hashes)
    }

    /// The worker that a policy chooses, as the filter asks it.
    pub(crate) fn select<P: Policy>(
        &mut self,
        request: &Request,
        policy: &P,
        now: Duration,
        tie: u64,
    ) -> Selection {
        let slots = self.index.slots().zip(self.books.left(now));
        let candidates: Vec<_> = slots.map(|(slot, load)| Candidate { slot, load }).collect();
        let limits = Limits { max_reads: MAX_PAGE_READS, choices: 1 };
        let question = Question { prompt: request.prompt, candidates: &candidates, policy, limits, tie };
        let mut selector = Selector::default();
        selector.assume(&self.routes.floors(request, now));
        let shape = self.index.shape();
        selector.advance(&mut self.index, shape, &request.hashes, true, &question);
        selector.selection(&question)
    }

    /// A request was sent to a worker that has `cached_blocks` of it, as far as is known.
    pub(crate) fn book(
        &mut self,
        id: u64,
        worker: usize,
        request: &Request,
        cached_blocks: u32,
        now: Duration,
    ) {
        self.books.book(id, worker, request, cached_blocks, now);
        let published = self.index.depths(&request.hashes).get(worker).map_or(0, Depths::any);
        self.routes.note(worker, request, published, now);
    }

    /// A request's first token is there.
    pub(crate) fn prefill_done(&mut self, id: u64, now: Duration) {
        self.books.prefill_done(id, now);
    }

    /// A request is answered.
    pub(crate) fn release(&mut self, id: u64) {
        self.books.release(id);
    }
}
