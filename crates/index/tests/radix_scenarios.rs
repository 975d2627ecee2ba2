//! NVIDIA Dynamo's scenarios for its radix tree. The index gives the exact answer wherever Dynamo's tree does not, and
//! takes what that one rejects.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use std::collections::BTreeMap;

use serde::Deserialize;
use warmroute_index::event::{EngineHash, Event, Group, Removed, StoredLocals};
use warmroute_index::{Index, WorkerId, WorkerIdentity};
use warmroute_routing::Tier;
use warmroute_routing::hash::{LocalHash, SequenceHash};

#[derive(Deserialize)]
struct File {
    radix_scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
struct Scenario {
    name: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Step {
    Event { worker_id: u64, event: DynamoEvent },
    ClearAllBlocks { worker_id: u64 },
    RemoveWorker { worker_id: u64 },
    Find { local_hashes: Vec<u64>, exact_scores: Vec<(u64, u32, usize)> },
}

#[derive(Deserialize)]
struct DynamoEvent {
    data: Data,
    dp_rank: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Data {
    Stored { parent_hash: Option<u64>, blocks: Vec<Block> },
    Removed { block_hashes: Vec<u64> },
    Cleared,
}

#[derive(Deserialize)]
struct Block {
    block_hash: u64,
    tokens_hash: u64,
}

/// An index whose workers come as they are heard of.
struct Replay {
    index: Index,
    workers: BTreeMap<(u64, u32), WorkerId>,
}

// === impl Replay ===

impl Replay {
    fn worker(&mut self, id: u64, rank: u32) -> WorkerId {
        let add = || self.index.add_worker(WorkerIdentity { address: id.to_string(), rank }).unwrap();
        *self.workers.entry((id, rank)).or_insert_with(add)
    }

    fn apply(&mut self, worker: u64, event: DynamoEvent) {
        let worker = self.worker(worker, event.dp_rank);
        match event.data {
            Data::Stored { parent_hash, blocks } => {
                let stored = StoredLocals {
                    hashes: blocks.iter().map(|block| EngineHash(block.block_hash)).collect(),
                    parent: parent_hash.map(EngineHash),
                    locals: blocks.iter().map(|block| LocalHash(block.tokens_hash)).collect(),
                    lora: None,
                    salt: None,
                    tier: Tier::Gpu,
                    group: Group(0),
                };
                self.index.apply_locals(worker, &stored).unwrap();
            }
            Data::Removed { block_hashes } => {
                let hashes = block_hashes.into_iter().map(EngineHash).collect();
                let removed = Removed { hashes, left: vec![], tier: Tier::Gpu, group: Group(0) };
                self.index.apply(worker, &Event::Removed(removed)).unwrap();
            }
            Data::Cleared => {
                self.index.apply(worker, &Event::Cleared).unwrap();
            }
        }
    }

    fn ranks(&self, worker: u64) -> Vec<WorkerId> {
        self.workers.range((worker, 0)..=(worker, u32::MAX)).map(|(_, id)| *id).collect()
    }

    fn find(&mut self, locals: &[u64]) -> Vec<(u64, u32, usize)> {
        let prompt = SequenceHash::chain(locals.iter().copied().map(LocalHash));
        let workers = self.workers.clone();
        let depths = workers
            .into_iter()
            .map(|((id, rank), worker)| (id, rank, support::depth(&mut self.index, worker, &prompt)));
        depths.filter(|(.., depth)| *depth > 0).collect()
    }

    fn step(&mut self, step: Step, scenario: &str) {
        match step {
            Step::Event { worker_id, event } => self.apply(worker_id, event),
            Step::ClearAllBlocks { worker_id } => {
                for id in self.ranks(worker_id) {
                    self.index.reset_worker(id);
                }
            }
            Step::RemoveWorker { worker_id } => {
                for id in self.ranks(worker_id) {
                    self.index.remove_worker(id);
                }
                self.workers.retain(|(id, _), _| *id != worker_id);
            }
            Step::Find { local_hashes, exact_scores } => {
                assert_eq!(self.find(&local_hashes), exact_scores, "{scenario}: find {local_hashes:?}");
            }
        }
    }
}

#[test]
fn every_find_is_exact() {
    let file: File = serde_json::from_str(include_str!("data/radix_scenarios.json")).unwrap();
    assert!(file.radix_scenarios.len() > 15);
    for scenario in file.radix_scenarios {
        let mut replay = Replay { index: support::index(1, 3), workers: BTreeMap::new() };
        for step in scenario.steps {
            replay.step(step, &scenario.name);
        }
    }
}
