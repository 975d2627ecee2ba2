//! What may happen to an index.

use proptest::prelude::*;
use warmroute_routing::Tier;
use warmroute_routing::hash::{LocalHash, Namespace};

/// Tokens in a block.
pub(crate) const BLOCK_SIZE: u32 = 2;

/// The names that engines use: few enough to meet again by chance.
const NAMES: u64 = 48;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Store(u32, Store),
    /// The same store again: each is a copy.
    Twice(u32, Store),
    /// A store of which the first `usize` blocks come after the others, or never if that is not told.
    Lost(u32, Store, usize, bool),
    /// A store without tokens.
    Known(u32, u32, Tier, Vec<u64>),
    /// Removes names, of each of which a number of copies may be left.
    Remove(u32, Tier, u32, Vec<(u64, u32)>, bool),
    /// Removes names that the worker has, chosen by these numbers, each from a tier that has a copy. The engine may say
    /// how many copies are left.
    Evict(u32, Vec<prop::sample::Index>, Option<u32>),
    Cleared(u32),
    /// What the worker has told is saved, and taken over by an index that has forgotten it.
    Restore(u32),
    Reset(u32),
    Leave(u32),
    Join(u32),
    Purge(usize),
    Generation(u8),
    Touch,
}

/// A stored event.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) parent: Option<u64>,
    pub(crate) blocks: Vec<(u64, Block)>,
    pub(crate) lora: Option<&'static str>,
    pub(crate) salt: Option<&'static str>,
    pub(crate) tier: Tier,
    pub(crate) group: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) tokens: [u32; BLOCK_SIZE as usize],
    pub(crate) media: Vec<u64>,
    /// Only the hash of its content is told.
    pub(crate) hashed: bool,
}

// === impl Store ===

impl Store {
    pub(crate) fn namespace(&self) -> Namespace {
        Namespace::new(self.lora, self.salt)
    }

    pub(crate) fn is_hashed(&self) -> bool {
        self.blocks.iter().any(|(_, block)| block.hashed)
    }

    /// The first `at` blocks, and those after them.
    pub(crate) fn split(self, at: usize) -> (Self, Self) {
        let at = at.min(self.blocks.len() - 1);
        let mut head = self.clone();
        let blocks = head.blocks.split_off(at);
        let parent = head.blocks.last().map_or(self.parent, |(name, _)| Some(*name));
        (head, Self { parent, blocks, ..self })
    }
}

// === impl Block ===

impl Block {
    pub(crate) fn local(&self, namespace: Namespace, told_under: Namespace) -> LocalHash {
        let namespace = if self.hashed { told_under } else { namespace };
        LocalHash::of_block_with_media(namespace, &self.tokens, &mut self.media.clone())
    }

    /// Whether it is told as the same content.
    pub(crate) fn is(&self, other: &Self, own_namespace: Namespace, others_namespace: Namespace) -> bool {
        if self.hashed && other.hashed {
            return self.local(own_namespace, own_namespace)
                == other.local(others_namespace, others_namespace);
        }
        let sorted = |block: &Self| {
            let mut media = block.media.clone();
            media.sort_unstable();
            media
        };
        (self.tokens, self.hashed, sorted(self)) == (other.tokens, other.hashed, sorted(other))
    }
}

fn any_tier() -> impl Strategy<Value = Tier> {
    prop_oneof![6 => Just(Tier::Gpu), 3 => Just(Tier::Cpu), 1 => Just(Tier::Disk), 1 => Just(Tier::External)]
}

fn any_content() -> impl Strategy<Value = (u32, Vec<u64>)> {
    let media =
        prop_oneof![8 => Just(vec![]), 1 => Just(vec![7]), 1 => Just(vec![7, 8]), 1 => Just(vec![8, 7])];
    (0..3u32, media)
}

/// A chain whose names follow from its content, as an engine's do, but for some that are given at random.
fn any_store() -> impl Strategy<Value = Store> {
    let parent = prop_oneof![3 => Just(None), 3 => (0..NAMES).prop_map(Some)];
    let namespace =
        prop_oneof![4 => Just((None, None)), 1 => Just((Some("a"), None)), 1 => Just((None, Some("s")))];
    let odd_name = prop_oneof![9 => Just(None), 1 => (0..NAMES).prop_map(Some)];
    // Now and then more than a run.
    let blocks = prop_oneof![
        9 => prop::collection::vec((any_content(), odd_name.clone()), 1..6),
        1 => prop::collection::vec((any_content(), odd_name), 16..40),
    ];
    let hashed = prop_oneof![4 => Just(false), 1 => Just(true)];
    (parent, namespace, blocks, hashed, any_tier(), group()).prop_map(
        |(parent, (lora, salt), contents, hashed, tier, group)| {
            let seed = Namespace::new(lora, salt).seed() % 3;
            let mut last = parent.unwrap_or(seed);
            let mut block = |((token, media), odd_name): ((u32, Vec<u64>), Option<u64>)| {
                let content = u64::from(token) + media.iter().sum::<u64>();
                last = odd_name.unwrap_or((last * 5 + content * 7 + 11) % NAMES);
                (last, Block { tokens: [token, token + 10], media, hashed })
            };
            let blocks = contents.into_iter().map(&mut block).collect();
            Store { parent, blocks, lora, salt, tier, group }
        },
    )
}

fn group() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0u32), 1 => Just(u32::MAX)]
}

/// How many copies an engine says are left.
fn left() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![3 => Just(None), 1 => (0..3u32).prop_map(Some)]
}

pub(crate) fn any_op() -> impl Strategy<Value = Op> {
    let worker = || 0..4u32;
    let names = || prop::collection::vec(0..NAMES, 0..5);
    let picks = prop::collection::vec(any::<prop::sample::Index>(), 1..6);
    prop_oneof![
        12 => (worker(), any_store()).prop_map(|(worker, store)| Op::Store(worker, store)),
        2 => (worker(), any_store()).prop_map(|(worker, store)| Op::Twice(worker, store)),
        4 => (worker(), any_store(), 1..4usize, any::<bool>())
            .prop_map(|(worker, store, at, later)| Op::Lost(worker, store, at, later)),
        2 => (worker(), group(), any_tier(), names()).prop_map(|(worker, group, tier, names)| Op::Known(worker, group, tier, names)),
        2 => (worker(), any_tier(), group(), prop::collection::vec((0..NAMES, 0..3u32), 0..5), any::<bool>())
            .prop_map(|(worker, tier, group, names, told)| Op::Remove(worker, tier, group, names, told)),
        8 => (worker(), picks, left()).prop_map(|(worker, picks, left)| Op::Evict(worker, picks, left)),
        1 => worker().prop_map(Op::Cleared),
        1 => worker().prop_map(Op::Restore),
        1 => worker().prop_map(Op::Reset),
        1 => worker().prop_map(Op::Leave),
        2 => worker().prop_map(Op::Join),
        2 => (0..20usize).prop_map(Op::Purge),
        1 => (0..5u8).prop_map(Op::Generation),
        1 => Just(Op::Touch),
    ]
}
