//! Their wire decoder beside our adapters, on every payload that was recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dynamo_kv_router::protocols::{KvCacheEventData, RouterEvent, StorageTier, WorkerWithDpRank};
use dynamo_kv_router::zmq_wire::{ZmqEventNormalizer, decode_event_batch};
use warmroute_wire::{Adapter, Engine};
use warmroute_index::event::{Event, Stored};
use warmroute_routing::Tier;
use warmroute_routing::hash::{LocalHash, Namespace};

use crate::recordings::{RECORDINGS, read};

/// Where the two read a payload differently, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Differs {
    /// They cannot read hashes that are bytes, and lose the whole payload.
    HashesOfBytes,
    /// They cannot read a batch without a rank, and lose it.
    BatchWithoutRank,
    /// A salt that vLLM tells as a bare extra key is none for them: the block passes for a plain one.
    SaltUnheeded,
    /// SGLang's names do not tell the adapter: ours are told apart by it, theirs are one for all.
    AdapterInNames,
    /// SGLang's pairs of tokens under EAGLE: they hash each page with the token after it, we the page's own tokens.
    PairsOfTokens,
}

/// What an event says, in words that both have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Stored { parent: Option<u64>, blocks: Vec<(u64, u64)>, tier: Tier },
    Removed { names: Vec<u64>, tier: Tier },
    Cleared,
}

/// What our adapter says, and what it says of each block.
struct Ours {
    adapter: Adapter,
    namespaces: HashMap<u64, Names>,
}

/// What a block's namespace is made of.
#[derive(Clone, Debug, Default)]
struct Names {
    lora: Option<String>,
    salt: Option<String>,
}

// === impl Ours ===

impl Ours {
    fn new(engine: Engine) -> Self {
        Self { adapter: Adapter::new(engine), namespaces: HashMap::new() }
    }

    /// The blocks' names are inherited, as the index does it.
    fn names(&mut self, stored: &Stored) -> Names {
        let own = Names { lora: stored.lora.clone(), salt: stored.salt.clone() };
        let parent = stored.parent.and_then(|parent| self.namespaces.get(&parent.0));
        let names = parent.cloned().unwrap_or(own);
        for hash in &stored.hashes {
            self.namespaces.insert(hash.0, names.clone());
        }
        names
    }

    fn told(&mut self, event: &Event) -> Told {
        match event {
            Event::Stored(stored) => {
                let names = self.names(stored);
                told_stored(stored, Namespace::new(names.lora.as_deref(), names.salt.as_deref()))
            }
            Event::Removed(removed) => Told::Removed {
                names: removed.hashes.iter().map(|hash| hash.0).collect(),
                tier: removed.tier,
            },
            Event::Cleared => Told::Cleared,
        }
    }
}

fn told_stored(stored: &Stored, namespace: Namespace) -> Told {
    let media = stored.media.iter().cloned().chain(std::iter::repeat(vec![]));
    let tokens = stored.tokens.chunks_exact(stored.block_size.max(1) as usize);
    let locals = tokens
        .zip(media)
        .map(|(tokens, mut media)| LocalHash::of_block_with_media(namespace, tokens, &mut media).0);
    Told::Stored {
        parent: stored.parent.map(|parent| parent.0),
        blocks: stored.hashes.iter().map(|hash| hash.0).zip(locals).collect(),
        tier: stored.tier,
    }
}

fn theirs(event: &RouterEvent) -> Told {
    let tier = match event.storage_tier {
        StorageTier::Device => Tier::Gpu,
        StorageTier::HostPinned => Tier::Cpu,
        StorageTier::Disk => Tier::Disk,
        StorageTier::External => Tier::External,
    };
    match &event.event.data {
        KvCacheEventData::Stored(stored) => Told::Stored {
            parent: stored.parent_hash.map(|hash| hash.0),
            blocks: stored.blocks.iter().map(|block| (block.block_hash.0, block.tokens_hash.0)).collect(),
            tier,
        },
        KvCacheEventData::Removed(removed) => {
            Told::Removed { names: removed.block_hashes.iter().map(|hash| hash.0).collect(), tier }
        }
        KvCacheEventData::Cleared => Told::Cleared,
    }
}

/// Why their word for one event differs from ours. Nothing that is not listed passes.
fn why(engine: Engine, ours: &mut Ours, event: &Event, theirs: &Told) -> Option<Differs> {
    let sglang = engine == Engine::Sglang;
    match (event, theirs, ours.told(event)) {
        (Event::Stored(stored), Told::Stored { blocks, .. }, Told::Stored { blocks: own, .. }) => {
            let names = ours.names(stored);
            let without_salt = Namespace::new(names.lora.as_deref(), None);
            let with_names = |blocks: &[(u64, u64)]| blocks.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            let contents = |blocks: &[(u64, u64)]| blocks.iter().map(|(_, local)| *local).collect::<Vec<_>>();
            if names.salt.is_some() && told_stored(stored, without_salt) == *theirs {
                Some(Differs::SaltUnheeded)
            } else if sglang && names.lora.is_some() && contents(blocks) == contents(&own) {
                Some(Differs::AdapterInNames)
            } else if sglang && with_names(blocks) == with_names(&own) {
                Some(Differs::PairsOfTokens)
            } else {
                None
            }
        }
        // Whatever adapter the copies belonged to.
        (Event::Removed(_), Told::Removed { names, .. }, Told::Removed { names: own, .. }) => {
            (sglang && own.starts_with(names)).then_some(Differs::AdapterInNames)
        }
        _ => None,
    }
}

/// All differences in a recording, by the run in which they are.
fn differences(name: &str, engine: Engine, block_size: u32) -> BTreeMap<String, BTreeSet<Differs>> {
    let mut runs: BTreeMap<String, (Ours, ZmqEventNormalizer)> = BTreeMap::new();
    let mut found = BTreeMap::<String, BTreeSet<Differs>>::new();
    for recorded in read(name) {
        let run = recorded.run;
        let (ours, normalizer) = runs
            .entry(run.clone())
            .or_insert_with(|| (Ours::new(engine), ZmqEventNormalizer::new(block_size)));
        let batch = ours.adapter.decode(&recorded.payload).unwrap();
        let found = found.entry(run.clone()).or_default();
        let decoded = match decode_event_batch(&recorded.payload) {
            Ok(decoded) => decoded,
            Err(error) => {
                let error = error.to_string();
                let known = [
                    ("BlockHashValue", Differs::HashesOfBytes),
                    ("invalid length 2", Differs::BatchWithoutRank),
                ];
                let known = known.into_iter().find(|(part, _)| error.contains(part));
                found.insert(known.unwrap_or_else(|| panic!("{name}, {run}: {error}")).1);
                continue;
            }
        };
        let worker = WorkerWithDpRank::new(1, 0);
        let events = decoded.events.into_iter();
        let events = events.filter_map(|raw| normalizer.normalize(raw, 0, worker)?.into_router_event());
        let theirs: Vec<_> = events.map(|event| theirs(&event)).collect();
        assert_eq!(batch.events.len(), theirs.len(), "{name}, {run}: {:?} and {theirs:?}", batch.events);
        for (event, theirs) in batch.events.iter().zip(&theirs) {
            if ours.told(event) != *theirs {
                let why = why(engine, ours, event, theirs);
                found
                    .insert(why.unwrap_or_else(|| panic!("{name}, {run}: {event:?} is for them {theirs:?}")));
            }
        }
    }
    found.retain(|_, found| !found.is_empty());
    found
}

#[test]
fn recorded_payloads_are_read_differently_in_the_listed_ways_only() {
    use Differs::{AdapterInNames, BatchWithoutRank, HashesOfBytes, PairsOfTokens, SaltUnheeded};
    let bytes_and_salt = ["0.20.0", "0.22.0", "0.24.0", "0.26.0", "0.33.0"];
    let expected: [(&str, Vec<(&str, Vec<Differs>)>); 7] = [
        ("vllm_0.32_base", vec![("run1-vllm0.32.0-sha256_cbor-seed0", vec![SaltUnheeded])]),
        ("vllm_0.32_sliding_window_bytes", vec![("run3-vllm0.32.0-swa-bytes-sha256", vec![HashesOfBytes])]),
        ("vllm_0.32_truth_1", vec![("w0", vec![SaltUnheeded])]),
        (
            "vllm_old_frames",
            [("0.9.0.post2", vec![HashesOfBytes, BatchWithoutRank])]
                .into_iter()
                .chain(["0.10.2", "0.14.0"].map(|release| (release, vec![HashesOfBytes])))
                .chain(bytes_and_salt.map(|release| (release, vec![HashesOfBytes, SaltUnheeded])))
                .collect(),
        ),
        ("mocker_events", vec![]),
        (
            "sglang_frames",
            [("0.4.6.post5", vec![BatchWithoutRank]), ("0.5.23", vec![AdapterInNames, PairsOfTokens])]
                .into_iter()
                .chain(["0.5.4", "0.5.12", "0.5.18", "0.5.19"].map(|release| (release, vec![PairsOfTokens])))
                .collect(),
        ),
        ("sglang_radix_events", vec![("sglang0.5.23-radix", vec![PairsOfTokens])]),
    ];
    for ((name, engine, block_size), (expected_name, expected)) in RECORDINGS.into_iter().zip(expected) {
        assert_eq!(name, expected_name);
        let found = differences(name, engine, block_size);
        let expected: BTreeMap<_, BTreeSet<_>> =
            expected.into_iter().map(|(run, differs)| (run, differs.into_iter().collect())).collect();
        assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
        for (run, differs) in &found {
            let expected = expected.iter().find(|(name, _)| run.ends_with(*name));
            assert_eq!(expected.map(|(_, differs)| differs), Some(differs), "{name}, {run}");
        }
    }
}
