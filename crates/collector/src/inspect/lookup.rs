//! A prompt looked up straight in an index, by the lookup that the filter uses.

use std::collections::HashMap;

use serde::Serialize;
use warmroute_index::Index;
use warmroute_routing::Tier;
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::lookup::{Depths, IndexShape, PageStore, RefineAll, Scope, lookup};
use warmroute_routing::page::Slot;

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

/// The workers that hold a prompt's first block, sorted by name, rank and tier.
pub fn cached_blocks(index: &mut Index, tokens: &[u32], namespace: Namespace) -> Vec<WorkerBlocks> {
    depths(index, tokens, namespace)
        .into_iter()
        .flat_map(|(worker, rank, depths)| {
            let entry = move |(tier, blocks): (Tier, u32)| WorkerBlocks {
                worker: worker.clone(),
                rank,
                tier: tier.as_str(),
                blocks,
            };
            steps(depths).map(entry)
        })
        .collect()
}

/// How deep each worker that holds a prompt's first block goes, sorted by name and rank.
pub(crate) fn depths(index: &mut Index, tokens: &[u32], namespace: Namespace) -> Vec<(String, u32, Depths)> {
    let hashes = sequence_hashes(tokens, index.block_size(), namespace);
    let shape = IndexShape { generation: index.generation(), page_bits: index.page_bits() };
    let workers: HashMap<Slot, _> =
        index.workers().map(|(_, identity, slot)| (slot, identity.clone())).collect();
    let live = |slot| workers.contains_key(&slot);
    let scope = Scope { store: &mut IndexPages(index), shape, live, max_reads: u32::MAX };
    let matches = lookup(scope, &hashes, &mut RefineAll);
    let mut depths: Vec<_> = matches
        .workers
        .iter()
        .filter_map(|found| {
            let identity = workers.get(&found.slot)?;
            Some((identity.address.clone(), identity.rank, found.at_least))
        })
        .collect();
    depths.sort_by(|(a, a_rank, _), (b, b_rank, _)| (a, a_rank).cmp(&(b, b_rank)));
    depths
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
