//! Answers to a recording's queries, by the lookup that the filter uses.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;
use warmroute_index::Index;
use warmroute_routing::Tier;
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::lookup::{Depths, IndexShape, PageStore, RefineAll, Scope, lookup};
use warmroute_routing::page::Slot;

use super::line::Query;

/// How much of a prompt each worker has cached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The query's own number.
    pub n: Value,
    /// The workers that hold the prompt's first block, sorted by name, rank and tier.
    pub blocks: Vec<WorkerBlocks>,
    /// Tokens in a block; null while it is not known.
    pub block_size: Option<u32>,
}

/// A depth of one worker's cache. Tiers that reach no deeper than a faster one are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerBlocks {
    /// The worker.
    pub worker: String,
    /// Its data-parallel rank.
    pub rank: u32,
    /// The tier.
    pub tier: &'static str,
    /// Blocks from the prompt's start that are in this tier or a faster one.
    pub blocks: u32,
}

/// Reads pages straight from an index.
struct IndexPages<'a>(&'a mut Index);

// === impl Answer ===

impl Answer {
    pub(super) fn unknown(query: Query, block_size: Option<u32>) -> Self {
        Self { n: query.n, blocks: Vec::new(), block_size }
    }

    pub(super) fn look_up(query: Query, index: &mut Index) -> Self {
        let namespace = Namespace::new(query.lora.as_deref(), query.salt.as_deref());
        let block_size = index.block_size();
        let hashes = sequence_hashes(&query.tokens, block_size, namespace);
        let shape = IndexShape { generation: index.generation(), page_bits: index.page_bits() };
        let workers: HashMap<Slot, _> =
            index.workers().map(|(_, identity, slot)| (slot, identity.clone())).collect();
        let live = |slot| workers.contains_key(&slot);
        let scope = Scope { store: &mut IndexPages(index), shape, live, max_reads: u32::MAX };
        let matches = lookup(scope, &hashes, &mut RefineAll);
        let mut blocks: Vec<_> = matches
            .workers
            .iter()
            .filter_map(|found| Some((workers.get(&found.slot)?, found.at_least)))
            .collect();
        blocks.sort_by_key(|(identity, _)| (&identity.address, identity.rank));
        let blocks = blocks
            .into_iter()
            .flat_map(|(identity, depths)| {
                steps(depths).map(|(tier, blocks)| WorkerBlocks {
                    worker: identity.address.clone(),
                    rank: identity.rank,
                    tier: tier.as_str(),
                    blocks,
                })
            })
            .collect();
        Self { n: query.n, blocks, block_size: Some(block_size) }
    }
}

/// The tiers that add blocks, fastest first.
fn steps(depths: Depths) -> impl Iterator<Item = (Tier, u32)> {
    let mut faster = 0;
    Tier::ALL.into_iter().filter_map(move |tier| {
        let blocks = depths.within(tier);
        (blocks > std::mem::replace(&mut faster, blocks)).then_some((tier, blocks))
    })
}

// === impl IndexPages ===

impl PageStore for IndexPages<'_> {
    type Bytes = Vec<u8>;

    fn read(&mut self, page: u32) -> Option<Vec<u8>> {
        (page < self.0.page_bits().page_count()).then(|| self.0.page(page))
    }
}
