//! NVIDIA Dynamo's KV router, with its default weights: the least of
//!
//! ```text
//! max(0, (prefill tokens in flight + prompt tokens) / B - cached blocks) + blocks in flight, this prompt's included
//! ```
//!
//! Blocks in flight that requests share count once for each worker: it keeps the set.

use std::collections::HashMap;

use warmroute_routing::hash::SequenceHash;
use warmroute_routing::lookup::Depths;

use super::{Arrival, Choice, Router};
use crate::dice::Dice;
use crate::gateway::Gateway;

/// The sets of active blocks.
#[derive(Debug)]
pub(super) struct Dynamo {
    /// By worker: how many requests in flight hold a block.
    active: Vec<HashMap<SequenceHash, u32>>,
    in_flight: HashMap<u64, (usize, Vec<SequenceHash>)>,
    dice: Dice,
}

// === impl Dynamo ===

impl Dynamo {
    pub(super) fn new(workers: usize, seed: u64) -> Self {
        Self { active: vec![HashMap::new(); workers], in_flight: HashMap::new(), dice: Dice::new(seed) }
    }
}

impl Router for Dynamo {
    fn route(&mut self, arrival: &Arrival<'_>, gateway: &mut Gateway) -> Choice {
        let request = arrival.request;
        let depths = gateway.depths(request);
        let block_size = f64::from(request.prompt.block_size);
        let costs = gateway.loads().iter().zip(&depths).zip(&self.active).map(|((load, depths), active)| {
            let prefill = (load.prefill_tokens + request.prompt.tokens) as f64 / block_size;
            let fresh = request.hashes.iter().filter(|hash| !active.contains_key(hash)).count();
            (prefill - f64::from(depths.any())).max(0.0) + (active.len() + fresh) as f64
        });
        let costs: Vec<f64> = costs.collect();
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let equals: Vec<usize> =
            (0..costs.len()).filter(|worker| costs.get(*worker) == Some(&least)).collect();
        let worker = equals.get(self.dice.below(equals.len())).copied().unwrap_or(0);
        if let Some(active) = self.active.get_mut(worker) {
            request.hashes.iter().for_each(|hash| *active.entry(*hash).or_default() += 1);
        }
        self.in_flight.insert(arrival.id, (worker, request.hashes.clone()));
        Choice { worker, cached_blocks: depths.get(worker).map_or(0, Depths::any) }
    }

    fn finished(&mut self, id: u64) {
        let Some((worker, hashes)) = self.in_flight.remove(&id) else { return };
        let Some(active) = self.active.get_mut(worker) else { return };
        for hash in hashes {
            if let Some(holders) = active.get_mut(&hash) {
                *holders -= 1;
                if *holders == 0 {
                    active.remove(&hash);
                }
            }
        }
    }
}
