//! What was just routed counts as cached until the index says so itself, or a short time has passed.
//!
//! One read for each question and one write for each route, and a write that loses its race is tried once more: what is lost
//! costs a worse choice and nothing else.

use warmroute_routing::hash::SequenceHash;
use warmroute_routing::lookup::Floor;
use warmroute_routing::page::{Generation, Slot};

use crate::host::{Host, WriteIf};
use crate::shared::{PoolKeys, RecentBook, RouteHead};

/// Attempts at a write that another thread's comes before.
const ATTEMPTS: u32 = 2;

/// A pool's recent routes, as one VM sees them.
#[derive(Debug)]
pub struct RecentRoutes {
    key: String,
    /// How long a route counts, in microseconds.
    life_us: u64,
    /// What was read last, and the write that stored it.
    book: RecentBook,
    write: WriteIf,
}

/// What a prompt's blocks are taken to be cached for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// The workers and depths, by route; one worker may come several times.
    pub floors: Vec<Floor>,
    /// The workers which more of the prompt may turn out to be cached for.
    pub open: Vec<Slot>,
}

// === impl RecentRoutes ===

impl RecentRoutes {
    /// The routes of the pool of this name, each of which counts for so long.
    pub fn new(pool: &str, life_us: u64) -> Self {
        let key = PoolKeys::new(pool).recent().to_owned();
        Self { key, life_us, book: RecentBook::new(Generation(0)), write: WriteIf::Absent }
    }

    fn read(&mut self, host: &impl Host, generation: Generation) {
        let found = host.shared(&self.key);
        self.write = found.as_ref().map_or(WriteIf::Absent, |value| WriteIf::Unchanged(value.cas));
        self.book = RecentBook::read(found.map(|value| value.bytes).unwrap_or_default(), generation);
    }

    /// Reads what was just routed, and says what of it a prompt with these first blocks shares.
    pub fn look_up(
        &mut self,
        host: &impl Host,
        generation: Generation,
        hashes: &[SequenceHash],
        now_us: u64,
    ) -> Assumed {
        self.read(host, generation);
        let mut assumed = Assumed::default();
        for route in self.book.routes().filter(|route| route.head.lives(now_us, self.life_us)) {
            let (slot, shared) = (route.head.slot, route.shared_with(hashes));
            if shared.blocks > 0 {
                assumed.floors.push(Floor { slot, blocks: shared.blocks });
            }
            if shared.goes_on {
                assumed.open.push(slot);
            }
        }
        assumed
    }

    /// Of a depth that a worker is taken to have: how much of it the index has said.
    pub fn published_part(&self, slot: Slot, hashes: &[SequenceHash], depth: u32, now_us: u64) -> u32 {
        let routes = self.book.routes().filter(|route| {
            route.head.slot == slot
                && route.head.lives(now_us, self.life_us)
                && route.shared_with(hashes).blocks >= depth
        });
        routes.map(|route| route.head.base).min().map_or(depth, |base| base.min(depth))
    }

    /// Writes a route down, on top of what was read last.
    pub fn record(
        &mut self,
        host: &impl Host,
        generation: Generation,
        route: RouteHead,
        hashes: &[SequenceHash],
    ) {
        if route.end <= route.base {
            return;
        }
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.read(host, generation);
            }
            self.book.push(route, hashes, self.life_us);
            if host.set_shared(&self.key, self.book.bytes(), self.write).is_ok() {
                return;
            }
        }
    }

    /// Writes a route down that was decided some time ago.
    pub fn record_later(
        &mut self,
        host: &impl Host,
        generation: Generation,
        route: RouteHead,
        hashes: &[SequenceHash],
    ) {
        self.read(host, generation);
        self.record(host, generation, route, hashes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    const GENERATION: Generation = Generation(1);
    const SECOND: u64 = 1_000_000;

    fn hashes(seed: u64, blocks: u64) -> Vec<SequenceHash> {
        (1..=blocks).map(|i| SequenceHash(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i)).collect()
    }

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    fn route(number: u16, end: u32) -> RouteHead {
        RouteHead { routed_at_us: SECOND, slot: slot(number), open: false, base: 0, end }
    }

    fn routes() -> RecentRoutes {
        RecentRoutes::new("p", 2 * SECOND)
    }

    #[test]
    fn what_one_thread_routes_the_others_take_for_cached_until_its_time_is_over() {
        let (host, prompt) = (FakeHost::default(), hashes(1, 40));
        let (mut one, mut two) = (routes(), routes());
        assert_eq!(one.look_up(&host, GENERATION, &prompt, SECOND), Assumed::default());
        one.record(&host, GENERATION, route(3, 40), &prompt);
        let seen = two.look_up(&host, GENERATION, &prompt, SECOND + 5);
        assert_eq!(seen.floors, [Floor { slot: slot(3), blocks: 40 }]);
        assert_eq!(two.look_up(&host, GENERATION, &prompt, 3 * SECOND), Assumed::default());
        assert_eq!(two.look_up(&host, Generation(2), &prompt, SECOND), Assumed::default());
    }

    #[test]
    fn two_threads_that_write_at_once_lose_neither_route() {
        let (host, prompt) = (FakeHost::default(), hashes(1, 40));
        let (mut one, mut two) = (routes(), routes());
        one.look_up(&host, GENERATION, &prompt, SECOND);
        two.look_up(&host, GENERATION, &prompt, SECOND);
        one.record(&host, GENERATION, route(1, 40), &prompt);
        two.record(&host, GENERATION, route(2, 40), &prompt);
        let slots: Vec<_> =
            one.look_up(&host, GENERATION, &prompt, SECOND).floors.iter().map(|floor| floor.slot).collect();
        assert_eq!(slots, [slot(1), slot(2)]);
    }

    #[test]
    fn a_decision_costs_one_read_and_one_write() {
        let (host, prompt) = (FakeHost::default(), hashes(1, 40));
        let mut routes = routes();
        routes.look_up(&host, GENERATION, &prompt, SECOND);
        routes.record(&host, GENERATION, route(1, 40), &prompt);
        assert_eq!(host.reads.get(), 1);
        assert_eq!(host.shared("warmroute/1/p/recent").unwrap().cas, 1);
        // What the worker has already, by the index, is not worth a write.
        routes.record(&host, GENERATION, RouteHead { base: 40, ..route(1, 40) }, &prompt);
        assert_eq!(host.shared("warmroute/1/p/recent").unwrap().cas, 1);
    }

    #[test]
    fn a_route_along_another_is_as_new_to_the_index_as_that_one() {
        let (host, prompt) = (FakeHost::default(), hashes(1, 40));
        let mut routes = routes();
        routes.look_up(&host, GENERATION, &prompt, SECOND);
        routes.record(&host, GENERATION, RouteHead { base: 8, ..route(1, 32) }, &prompt);
        assert_eq!(routes.published_part(slot(1), &prompt, 32, SECOND), 8);
        assert_eq!(routes.published_part(slot(1), &prompt, 36, SECOND), 36, "the index knew more");
        assert_eq!(routes.published_part(slot(2), &prompt, 32, SECOND), 32);
    }
}
