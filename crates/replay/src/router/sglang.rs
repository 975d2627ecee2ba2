//! SGLang's model gateway: cache-aware, with its default constants.
//!
//! It keeps its own tree of what it sent where, without the engines' word. While the workers' requests in flight are
//! balanced (the most exceed the least by no more than 64, or by no more than half): where the tree matches more than
//! 0.3 of a prompt, to the worker that had the match last; else to the one with the smallest tree. Otherwise: to the
//! worker with the fewest requests. Its bound on the tree's size, 2^26 characters a worker, is not reached here.

use std::collections::HashMap;

use warmroute_routing::hash::SequenceHash;

use super::{Arrival, Choice, Router, least};
use crate::gateway::Gateway;
use crate::workload::Request;

const LEAST_SHARE: f64 = 0.3;
const MOST_SURPLUS: u32 = 64;
const MOST_RATIO: f64 = 1.5;

/// The tree, by block.
#[derive(Debug)]
pub(super) struct CacheAware {
    /// The workers that were sent a block, the last one last.
    sent: HashMap<SequenceHash, Vec<usize>>,
    /// Blocks in each worker's tree.
    sizes: Vec<u64>,
}

// === impl CacheAware ===

impl CacheAware {
    pub(super) fn new(workers: usize) -> Self {
        Self { sent: HashMap::new(), sizes: vec![0; workers] }
    }

    fn longest(&self, request: &Request) -> (usize, Option<usize>) {
        let holders = request.hashes.iter().map_while(|hash| self.sent.get(hash)?.last());
        holders.fold((0, None), |(blocks, _), worker| (blocks + 1, Some(*worker)))
    }

    fn insert(&mut self, request: &Request, worker: usize) {
        for hash in &request.hashes {
            let workers = self.sent.entry(*hash).or_default();
            let before = workers.len();
            workers.retain(|other| *other != worker);
            if let Some(size) = self.sizes.get_mut(worker).filter(|_| workers.len() == before) {
                *size += 1;
            }
            workers.push(worker);
        }
    }
}

impl Router for CacheAware {
    fn route(&mut self, arrival: &Arrival<'_>, gateway: &mut Gateway) -> Choice {
        let requests = || gateway.loads().iter().map(|load| load.requests);
        let (most, fewest) = (requests().max().unwrap_or(0), requests().min().unwrap_or(0));
        let unbalanced = most - fewest > MOST_SURPLUS && f64::from(most) > MOST_RATIO * f64::from(fewest);
        let (blocks, holder) = self.longest(arrival.request);
        let share = blocks as f64 * f64::from(arrival.request.prompt.block_size)
            / arrival.request.prompt.tokens.max(1) as f64;
        let worker = match holder {
            _ if unbalanced => least(requests()),
            Some(worker) if share > LEAST_SHARE => worker,
            _ => least(self.sizes.iter()),
        };
        self.insert(arrival.request, worker);
        Choice { worker, cached_blocks: 0 }
    }
}
