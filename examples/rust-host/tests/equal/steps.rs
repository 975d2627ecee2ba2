//! What happens to an index, in terms of both sides.

use proptest::prelude::*;
use warmroute_host::{prefix_index, types};
use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored};
use warmroute_routing::Tier;

pub(crate) const BLOCK_SIZE: u32 = 4;
pub(crate) const WORKERS: u64 = 5;
/// Prompts that are stored and asked for.
pub(crate) const PROMPTS: u32 = 4;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A worker stores some blocks of a prompt, the first of them after `skip` others, which it may not hold.
    Store { worker: u64, prompt: u32, skip: u32, blocks: u32, tier: u8 },
    /// A worker drops one block of a prompt.
    Remove { worker: u64, prompt: u32, block: u32, tier: u8 },
    /// A worker's cache is emptied.
    Clear { worker: u64 },
    /// A request asks for a worker, and stays in flight.
    Select { prompt: u32, blocks: u32 },
    /// The oldest request in flight ends.
    Free,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (worker, prompt, tier) = (1..=WORKERS, 0..PROMPTS, 0..4u8);
    let skip = prop_oneof![3 => Just(0), 1 => 1..8u32];
    let step = prop_oneof![
        4 => (worker.clone(), prompt.clone(), skip, 1..12u32, tier.clone())
            .prop_map(|(worker, prompt, skip, blocks, tier)| Step::Store { worker, prompt, skip, blocks, tier }),
        2 => (worker.clone(), prompt.clone(), 0..12u32, tier)
            .prop_map(|(worker, prompt, block, tier)| Step::Remove { worker, prompt, block, tier }),
        1 => worker.prop_map(|worker| Step::Clear { worker }),
        4 => (prompt, 1..14u32).prop_map(|(prompt, blocks)| Step::Select { prompt, blocks }),
        1 => Just(Step::Free),
    ];
    prop::collection::vec(step, 1..60)
}

/// A prompt's tokens; those of two prompts are alike for the first three blocks.
pub(crate) fn tokens(prompt: u32, blocks: u32) -> Vec<u32> {
    let token = |i: u32| if i < 3 * BLOCK_SIZE { i } else { i + 1_000 * prompt };
    (0..blocks * BLOCK_SIZE).map(token).collect()
}

fn engine_hash(prompt: u32, block: u32) -> u64 {
    if block < 3 { u64::from(block) } else { u64::from(block + 1_000 * (prompt + 1)) }
}

/// A cache's change as each side takes it.
pub(crate) fn both(step: &Step) -> Option<(u64, Event, prefix_index::Event)> {
    const TIERS: [types::Tier; 4] =
        [types::Tier::Gpu, types::Tier::Cpu, types::Tier::Disk, types::Tier::External];
    Some(match *step {
        Step::Store { worker, prompt, skip, blocks, tier } => {
            let hashes: Vec<u64> = (skip..skip + blocks).map(|block| engine_hash(prompt, block)).collect();
            let parent = skip.checked_sub(1).map(|block| engine_hash(prompt, block));
            let tokens = tokens(prompt, skip + blocks).split_off((skip * BLOCK_SIZE) as usize);
            let stored = Stored {
                hashes: hashes.iter().copied().map(EngineHash).collect(),
                parent: parent.map(EngineHash),
                tokens: tokens.clone(),
                block_size: BLOCK_SIZE,
                media: vec![],
                lora: None,
                salt: None,
                tier: Tier::ALL[usize::from(tier)],
                group: Group(0),
            };
            let told = prefix_index::Stored {
                hashes,
                parent,
                content: prefix_index::Content::Tokens((types::Tokens::Ids(tokens), BLOCK_SIZE)),
                lora: None,
                salt: None,
                tier: TIERS[usize::from(tier)],
                group: 0,
            };
            (worker, Event::Stored(stored), prefix_index::Event::Stored(told))
        }
        Step::Remove { worker, prompt, block, tier } => {
            let hash = engine_hash(prompt, block);
            let removed = Removed {
                hashes: vec![EngineHash(hash)],
                left: vec![],
                tier: Tier::ALL[usize::from(tier)],
                group: Group(0),
            };
            let told = prefix_index::Removed {
                hashes: vec![hash],
                left: vec![],
                tier: TIERS[usize::from(tier)],
                group: 0,
            };
            (worker, Event::Removed(removed), prefix_index::Event::Removed(told))
        }
        Step::Clear { worker } => (worker, Event::Cleared, prefix_index::Event::Cleared),
        Step::Select { .. } | Step::Free => return None,
    })
}
