//! Random workloads against a plain model of residency that knows nothing but the events.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const BLOCK_SIZE: usize = 2;

#[derive(Clone, Debug)]
enum Action {
    /// Starts a request: tokens of a small alphabet, so that prefixes meet.
    Start {
        tokens: Vec<u32>,
        salted: bool,
        lora: bool,
    },
    /// Generates a token in one of the running requests.
    Append {
        which: usize,
        token: u32,
    },
    /// Ends one of the running requests.
    Finish {
        which: usize,
    },
    Reset,
}

/// What a consumer of the events knows: which blocks follow which, and how many copies of each are resident.
#[derive(Default)]
struct Residency {
    children: HashMap<Identity, BlockHash>,
    copies: HashMap<BlockHash, usize>,
}

/// Parent, tokens and extra keys: what makes a block what it is.
type Identity = (Option<BlockHash>, Vec<u32>, Vec<Arc<str>>);

// === impl Residency ===

impl Residency {
    fn apply(&mut self, event: CacheEvent) {
        match event {
            CacheEvent::Stored(blocks) => self.store(&blocks),
            CacheEvent::Removed(hash) => {
                let copies = self.copies.get_mut(&hash).expect("only what was stored is removed");
                *copies = copies.checked_sub(1).expect("no more removals than stores");
            }
            CacheEvent::Cleared => self.copies.clear(),
        }
    }

    fn store(&mut self, blocks: &StoredBlocks) {
        assert_eq!(blocks.tokens.len(), blocks.hashes.len() * BLOCK_SIZE);
        assert_eq!(blocks.extra_keys.len(), blocks.hashes.len());
        let mut parent = blocks.parent;
        for ((hash, tokens), keys) in
            blocks.hashes.iter().zip(blocks.tokens.chunks(BLOCK_SIZE)).zip(&blocks.extra_keys)
        {
            self.children.insert((parent, tokens.to_vec(), keys.clone()), *hash);
            *self.copies.entry(*hash).or_default() += 1;
            parent = Some(*hash);
        }
    }

    fn cached_tokens(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let most = (tokens.len() - 1) / BLOCK_SIZE;
        let mut parent = None;
        for (index, block) in tokens.chunks_exact(BLOCK_SIZE).take(most).enumerate() {
            let key = (parent, block.to_vec(), namespace.extra_keys(index));
            match self.children.get(&key) {
                Some(hash) if self.copies.get(hash).is_some_and(|copies| *copies > 0) => parent = Some(*hash),
                _ => return index * BLOCK_SIZE,
            }
        }
        most * BLOCK_SIZE
    }

    fn resident_blocks(&self) -> usize {
        self.copies.values().sum()
    }
}

fn action() -> impl Strategy<Value = Action> {
    let tokens = prop::collection::vec(0..3_u32, 1..14);
    prop_oneof![
        4 => (tokens, prop::bool::weighted(0.2), prop::bool::weighted(0.2))
            .prop_map(|(tokens, salted, lora)| Action::Start { tokens, salted, lora }),
        4 => (0..8_usize, 0..3_u32).prop_map(|(which, token)| Action::Append { which, token }),
        4 => (0..8_usize).prop_map(|which| Action::Finish { which }),
        1 => Just(Action::Reset),
    ]
}

fn check_invariants(cache: &BlockCache, running: &[Sequence], residency: &Residency) {
    let mut holders: HashMap<BlockId, usize> = HashMap::new();
    for id in running.iter().flat_map(|sequence| &sequence.blocks) {
        *holders.entry(*id).or_default() += 1;
    }
    let free: Vec<_> = cache.free.iter().collect();
    for (number, block) in cache.blocks.iter().enumerate() {
        let id = BlockId(number);
        match block.state {
            BlockState::Held { holders: counted } => assert_eq!(holders.get(&id), Some(&counted)),
            BlockState::Free(_) => assert!(!holders.contains_key(&id) && free.contains(&id)),
        }
        if let Some(hash) = block.hash {
            assert!(cache.by_hash[&hash].contains(&id));
        }
    }
    assert_eq!(cache.held_blocks(), holders.len());
    let findable: usize = cache.by_hash.values().map(Vec::len).sum();
    assert_eq!(findable, cache.blocks.iter().filter(|block| block.hash.is_some()).count());
    assert_eq!(findable, residency.resident_blocks(), "the events tell all that is in the cache");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_predict_what_is_cached(
        num_blocks in 1..16_usize,
        actions in prop::collection::vec(action(), 1..60),
    ) {
        let mut cache = BlockCache::new(NonZeroUsize::new(BLOCK_SIZE).unwrap(), num_blocks, 1);
        let mut residency = Residency::default();
        let mut running: Vec<Sequence> = Vec::new();
        for action in actions {
            match action {
                Action::Start { tokens, salted, lora } => {
                    let namespace = Namespace {
                        lora: lora.then(|| Lora { id: 1, name: "ad1".into() }),
                        salt: salted.then(|| "salt".into()),
                    };
                    let predicted = residency.cached_tokens(&namespace, &tokens);
                    let mut sequence = Sequence::new(namespace, tokens);
                    if let Ok(cached_tokens) = cache.admit(&mut sequence) {
                        prop_assert_eq!(cached_tokens, predicted);
                        running.push(sequence);
                    } else {
                        prop_assert_eq!(sequence.held_blocks(), 0);
                    }
                }
                Action::Append { which, token } if which < running.len() => {
                    let before = running[which].tokens.len();
                    let appended = cache.append(&mut running[which], token).is_ok();
                    prop_assert_eq!(running[which].tokens.len(), before + usize::from(appended));
                }
                Action::Finish { which } if which < running.len() => cache.release(&mut running.remove(which)),
                Action::Append { .. } | Action::Finish { .. } => {}
                Action::Reset => prop_assert_eq!(cache.reset().is_ok(), running.is_empty()),
            }
            for event in cache.take_events() {
                residency.apply(event);
            }
            check_invariants(&cache, &running, &residency);
        }
    }
}
