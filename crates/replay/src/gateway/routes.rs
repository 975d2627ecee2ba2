//! Where requests were sent a moment ago, in the filter's own book: their blocks count as cached there until their events
//! have come.

use std::time::Duration;

use warmroute::shared::{RecentBook, RouteHead};
use warmroute_routing::lookup::Floor;
use warmroute_routing::page::Slot;

use super::index::GENERATION;
use super::micros;
use crate::workload::Request;

/// The routes of the last moments.
pub(crate) struct RecentRoutes {
    life_us: u64,
    book: RecentBook,
}

// === impl RecentRoutes ===

impl RecentRoutes {
    /// Nothing was sent yet. With no life, nothing is ever remembered.
    pub(crate) fn new(life: Duration) -> Self {
        Self { life_us: micros(life), book: RecentBook::new(GENERATION) }
    }

    /// A request was sent to a worker that the index has `published_blocks` of it for.
    pub(crate) fn note(&mut self, worker: usize, request: &Request, published_blocks: u32, now: Duration) {
        let Some(slot) = u16::try_from(worker).ok().and_then(Slot::new) else { return };
        let (base, end, routed_at_us) = (published_blocks, request.prompt.blocks, micros(now));
        let head = RouteHead { routed_at_us, slot, open: false, base, end };
        self.book.push(head, &request.hashes, self.life_us);
    }

    /// How much of a prompt workers were sent a moment ago.
    pub(crate) fn floors(&self, request: &Request, now: Duration) -> Vec<Floor> {
        let routes = self.book.routes().filter(|route| route.head.lives(micros(now), self.life_us));
        let floor = |(slot, blocks)| Floor { slot, blocks };
        let shared = routes.map(|route| (route.head.slot, route.shared_with(&request.hashes).blocks));
        shared.filter(|(_, blocks)| *blocks > 0).map(floor).collect()
    }
}
