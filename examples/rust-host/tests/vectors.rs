//! The vectors that hold for the core hold through the component.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

use std::collections::BTreeMap;

use serde::Deserialize;
use warmroute_host::{Warmroute, hashing, prefix_index, router, types};

fn open() -> Warmroute {
    Warmroute::open(&Warmroute::built_component().unwrap()).unwrap()
}

mod hashes {
    use super::*;

    #[derive(Deserialize)]
    struct Vectors {
        hash_vectors: Vec<Vector>,
    }

    #[derive(Deserialize)]
    struct Vector {
        name: String,
        tokens: Vec<u32>,
        block_size: u32,
        block_mm_infos: Option<Vec<Option<MediaInfo>>>,
        lora_name: Option<String>,
        is_eagle: Option<bool>,
        cache_namespace: Option<String>,
        block_hashes: Vec<String>,
        sequence_hashes: Vec<String>,
    }

    #[derive(Deserialize)]
    struct MediaInfo {
        mm_objects: Vec<MediaObject>,
    }

    #[derive(Deserialize)]
    struct MediaObject {
        mm_hash: u64,
    }

    impl Vector {
        fn extras(&self) -> hashing::Extras {
            let blocks = self.tokens.len() / self.block_size as usize;
            let media = |infos: &Vec<Option<MediaInfo>>| {
                let names = |block: usize| {
                    let info = infos.get(block).and_then(Option::as_ref);
                    info.map(|info| info.mm_objects.iter().map(|object| object.mm_hash).collect())
                };
                (0..blocks).map(|block| names(block).unwrap_or_default()).collect()
            };
            let media = self.block_mm_infos.as_ref().map(media).unwrap_or_default();
            hashing::Extras { media, eagle: self.is_eagle == Some(true) }
        }
    }

    fn numbers(texts: &[String]) -> Vec<u64> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn equal_dynamos() {
        let text = include_str!("../../../crates/routing/tests/data/dynamo_hashes.json");
        let vectors = serde_json::from_str::<Vectors>(text).unwrap().hash_vectors;
        assert!(vectors.len() >= 20, "{} vectors", vectors.len());
        let mut host = open();
        for vector in &vectors {
            let namespace =
                types::Namespace { lora: vector.lora_name.clone(), salt: vector.cache_namespace.clone() };
            let hashes = host
                .world
                .warmroute_routing_hashing()
                .call_hash_tokens(
                    &mut host.store,
                    &types::Tokens::Ids(vector.tokens.clone()),
                    vector.block_size,
                    &namespace,
                    Some(&vector.extras()),
                )
                .unwrap()
                .unwrap();
            assert_eq!(hashes.blocks, numbers(&vector.block_hashes), "{}", vector.name);
            assert_eq!(hashes.sequences, numbers(&vector.sequence_hashes), "{}", vector.name);
        }
    }
}

mod radix {
    use super::*;

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
        Find { local_hashes: Vec<u64>, exact_scores: Vec<(u64, u32, u32)> },
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

    fn event(data: Data) -> prefix_index::Event {
        match data {
            Data::Stored { parent_hash, blocks } => prefix_index::Event::Stored(prefix_index::Stored {
                hashes: blocks.iter().map(|block| block.block_hash).collect(),
                parent: parent_hash,
                content: prefix_index::Content::Blocks(
                    blocks.iter().map(|block| block.tokens_hash).collect(),
                ),
                lora: None,
                salt: None,
                tier: types::Tier::Gpu,
                group: 0,
            }),
            Data::Removed { block_hashes } => prefix_index::Event::Removed(prefix_index::Removed {
                hashes: block_hashes,
                left: vec![],
                tier: types::Tier::Gpu,
                group: 0,
            }),
            Data::Cleared => prefix_index::Event::Cleared,
        }
    }

    #[test]
    fn scenarios_of_dynamos_tree_give_the_exact_depths() {
        let text = include_str!("../../../crates/index/tests/data/radix_scenarios.json");
        let scenarios = serde_json::from_str::<File>(text).unwrap().radix_scenarios;
        assert!(scenarios.len() >= 5, "{} scenarios", scenarios.len());
        let mut host = open();
        let Warmroute { store, world } = &mut host;
        let calls = world.warmroute_routing_prefix_index();
        let indexes = calls.index();
        for scenario in scenarios {
            let options = prefix_index::Options { block_size: 16, max_orphans: 10_000 };
            let index = indexes.call_open(&mut *store, options).unwrap().unwrap();
            for step in scenario.steps {
                let workers = indexes.call_workers(&mut *store, index).unwrap();
                let ranks = |id: u64| workers.iter().copied().filter(move |worker| worker.id == id);
                match step {
                    Step::Event { worker_id, event: told } => {
                        let worker = types::Worker { id: worker_id, rank: told.dp_rank };
                        assert!(indexes.call_add_worker(&mut *store, index, worker).unwrap());
                        let events = [event(told.data)];
                        let outcome = indexes.call_apply(&mut *store, index, worker, &events, 0).unwrap();
                        assert_eq!(outcome.failed, [], "{}", scenario.name);
                    }
                    Step::ClearAllBlocks { worker_id } => {
                        for worker in ranks(worker_id) {
                            assert!(indexes.call_reset_worker(&mut *store, index, worker).unwrap());
                        }
                    }
                    Step::RemoveWorker { worker_id } => {
                        for worker in ranks(worker_id) {
                            assert!(indexes.call_remove_worker(&mut *store, index, worker).unwrap());
                        }
                    }
                    Step::Find { local_hashes, mut exact_scores } => {
                        let prompt = types::Prompt::Blocks(local_hashes);
                        let found = indexes.call_matches(&mut *store, index, &prompt).unwrap().unwrap();
                        let score = |found: &prefix_index::Match| {
                            (found.worker.id, found.worker.rank, found.depths.gpu)
                        };
                        let mut scores: Vec<_> = found.iter().map(score).collect();
                        scores.sort_unstable();
                        exact_scores.sort_unstable();
                        assert_eq!(scores, exact_scores, "{}", scenario.name);
                    }
                }
            }
            index.resource_drop(&mut *store).unwrap();
        }
    }
}

mod costs {
    use super::*;

    #[derive(Deserialize)]
    struct Cases {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        name: String,
        env: BTreeMap<String, String>,
        block_size: u32,
        active_prefill_tokens: BTreeMap<String, u64>,
        dynamo: Dynamo,
        formula_logits: BTreeMap<String, f64>,
    }

    #[derive(Deserialize)]
    struct Dynamo {
        isl: u64,
        potential_loads: BTreeMap<String, PotentialLoad>,
        overlap: BTreeMap<String, Overlap>,
    }

    #[derive(Deserialize)]
    struct PotentialLoad {
        potential_decode_blocks: u64,
        active_requests: u32,
    }

    #[derive(Deserialize)]
    struct Overlap {
        device_blocks: u32,
        host_pinned_blocks: u32,
        disk_blocks: u32,
    }

    #[test]
    fn equal_dynamos_to_three_decimals() {
        let text = include_str!("../../../crates/routing/tests/data/dynamo_cost.json");
        let cases = serde_json::from_str::<Cases>(text).unwrap().cases;
        assert!(cases.len() >= 3);
        let mut host = open();
        for case in &cases {
            let weight =
                |name: &str, default: f64| case.env.get(name).map_or(default, |value| value.parse().unwrap());
            let policy = router::Policy::Cost(router::Weights {
                prefill_scale: weight("DYN_ROUTER_PREFILL_LOAD_SCALE", 1.0),
                gpu_credit: weight("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT", 1.0),
                cpu_credit: 0.75,
                disk_credit: 0.25,
                credit_decay: 0.0,
                request_weight: weight("DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT", 0.0),
            });
            let prompt_blocks = case.dynamo.isl / u64::from(case.block_size);
            for (worker, expected) in &case.formula_logits {
                let (told, overlap) = (&case.dynamo.potential_loads[worker], &case.dynamo.overlap[worker]);
                let question = router::Question {
                    prompt_tokens: case.dynamo.isl,
                    block_size: case.block_size,
                    depths: types::Depths {
                        gpu: overlap.device_blocks,
                        cpu: overlap.host_pinned_blocks,
                        disk: overlap.disk_blocks,
                        external: overlap.disk_blocks,
                    },
                    load: types::Load {
                        requests: told.active_requests,
                        prefill_tokens: case.active_prefill_tokens[worker],
                        // Dynamo's figure has this prompt's blocks in it.
                        blocks: told.potential_decode_blocks - prompt_blocks,
                    },
                    least_prefill_tokens: 0,
                };
                let cost = host
                    .world
                    .warmroute_routing_router()
                    .call_cost_of(&mut host.store, policy, question)
                    .unwrap();
                let first = cost.first;
                assert!(
                    (first - expected).abs() < 0.000_51,
                    "{}: {worker}: {first}, not {expected}",
                    case.name
                );
            }
        }
    }
}
