//! Consistent hashing of a prompt's beginning, with bounded loads: the worker that comes first for the first 256 tokens,
//! or the next one whose requests in flight are under 1.25 times the mean.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Arrival, Choice, Router};
use crate::gateway::Gateway;

const PREFIX_TOKENS: u32 = 256;
const LOAD_FACTOR: f64 = 1.25;

/// The ring: each prefix puts the workers in an order of its own.
#[derive(Debug)]
pub(super) struct HashRing;

// === impl HashRing ===

impl Router for HashRing {
    fn route(&mut self, arrival: &Arrival<'_>, gateway: &mut Gateway) -> Choice {
        let request = arrival.request;
        let blocks = PREFIX_TOKENS.div_ceil(request.prompt.block_size.max(1)) as usize;
        let key = request.hashes.iter().take(blocks).next_back().map_or(request.prompt.tokens, |hash| hash.0);
        let mut ring: Vec<usize> = (0..gateway.workers()).collect();
        ring.sort_by_key(|worker| xxh3_64_with_seed(&worker.to_le_bytes(), key));
        let all: u32 = gateway.loads().iter().map(|load| load.requests).sum();
        let bound = (f64::from(all + 1) / gateway.workers() as f64 * LOAD_FACTOR).ceil();
        let has_room = |worker: &&usize| {
            gateway.loads().get(**worker).is_some_and(|load| f64::from(load.requests + 1) <= bound)
        };
        let worker = ring.iter().find(has_room).or(ring.first()).copied().unwrap_or(0);
        Choice { worker, cached_blocks: 0 }
    }
}
