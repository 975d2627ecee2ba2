//! A pool's owner looked into: see [`crate::inspect`].

use std::collections::HashMap;
use std::ops::Range;

use warmroute_index::{Index, WorkerStats};
use warmroute_routing::Tier;
use warmroute_routing::hash::Namespace;
use warmroute_routing::page::{Generation, Page, Slot};
use warmroute_routing::pool::WorkerState;

use super::roster::Roster;
use crate::inspect::{ByTier, Explanation, GroupReport, Question, WorkerExplanation, WorkerReport, depths};

/// A part of an index's pages, counted.
#[derive(Clone, Debug)]
pub(super) struct Census {
    /// The generation that the slots are of.
    pub(super) generation: Generation,
    /// Published blocks by slot.
    pub(super) blocks: HashMap<Slot, ByTier>,
}

/// A worker's report, and the slot whose blocks are still to be counted.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) place: u64,
    pub(super) slot: Option<Slot>,
    pub(super) report: WorkerReport,
}

// === impl Listed ===

impl Listed {
    /// The report with what the index knows of the worker.
    pub(super) fn with(self, blocks: ByTier, stats: WorkerStats) -> WorkerReport {
        let WorkerStats { unpublished, orphans, by_group, .. } = stats;
        let groups = by_group.into_iter().map(|(group, counts)| {
            let mut names = ByTier::default();
            for (tier, count) in Tier::ALL.into_iter().zip(counts) {
                *names.of(tier) = count;
            }
            GroupReport { group: group.0, names }
        });
        WorkerReport { blocks, unpublished, orphans, groups: groups.collect(), ..self.report }
    }
}

// === impl Census ===

impl Census {
    pub(super) fn take(index: &mut Index, pages: Range<u32>) -> Self {
        let mut census = Self { generation: index.generation(), blocks: HashMap::new() };
        for number in pages {
            let bytes = index.page(number);
            // Pages of our own make are whole.
            let Ok(page) = Page::parse(&bytes) else { continue };
            for (_, record) in page.records() {
                for holder in record.holders.iter() {
                    *census.blocks.entry(holder.slot).or_default().of(holder.tier) += 1;
                }
            }
        }
        census
    }
}

/// Every worker, without its blocks.
pub(super) fn list(roster: &Roster, index: &Index) -> Vec<Listed> {
    let slots: HashMap<_, _> = index.workers().map(|(id, _, slot)| (id, slot)).collect();
    let rows = roster.places().into_iter().filter_map(|place| Some((place, roster.get(place)?)));
    let rows = rows.map(|(place, row)| Listed {
        place,
        slot: slots.get(&row.id).copied(),
        report: WorkerReport {
            worker: row.address.to_string(),
            rank: row.rank,
            state: name_of(row.state()).to_owned(),
            connected: row.connected,
            healthy: row.healthy,
            refused: row.refusal.map(|refusal| refusal.to_string()),
            blocks: ByTier::default(),
            unpublished: 0,
            orphans: 0,
            groups: Vec::new(),
            last_batch: row.last.map(|last| last.seq),
            received: row.metrics.received(),
        },
    });
    rows.collect()
}

/// What each worker has of a prompt; the cheapest first, and those that are down last.
pub(super) fn explain(
    pool: &str,
    question: &Question,
    namespace: Namespace,
    roster: &Roster,
    index: &mut Index,
) -> Explanation {
    let block_size = index.block_size();
    let tokens = question.tokens.len() as u64;
    let held: HashMap<_, _> = depths(index, &question.tokens, namespace)
        .into_iter()
        .map(|(worker, rank, depths)| ((worker, rank), depths))
        .collect();
    let mut workers: Vec<_> = roster
        .rows()
        .map(|row| {
            let (worker, rank) = (row.address.to_string(), u32::from(row.rank));
            let depths = held.get(&(worker.clone(), rank)).copied();
            let mut cached_blocks = ByTier::default();
            for tier in Tier::ALL {
                *cached_blocks.of(tier) = depths.map_or(0, |depths| u64::from(depths.within(tier)));
            }
            let deepest = depths.map_or(0, |depths| u64::from(depths.any()));
            WorkerExplanation {
                worker,
                rank,
                state: name_of(row.state()).to_owned(),
                cached_blocks,
                uncached_tokens: Explanation::uncached_tokens(tokens, block_size, deepest),
            }
        })
        .collect();
    workers.sort_by_key(|worker| (worker.state != name_of(WorkerState::Up), worker.uncached_tokens));
    let blocks = tokens / u64::from(block_size);
    Explanation { pool: pool.to_owned(), block_size, tokens, blocks, workers }
}

fn name_of(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Up => "up",
        WorkerState::Down => "down",
    }
}
