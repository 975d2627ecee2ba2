//! Their trees beside our index, on what engines do.

use std::collections::{BTreeMap, BTreeSet};

use dynamo_kv_router::indexer::{KvIndexerInterface, ThreadPoolIndexer};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree, SyncIndexer};
use warmroute_compare::blocks::Chain;
use warmroute_compare::dice::Dice;
use warmroute_compare::engine::{Names, Rank, Told, stored};
use warmroute_compare::ours::{OurEvent, Ours};
use warmroute_compare::theirs;
use warmroute_routing::hash::SequenceHash;

const ENGINES: u32 = 4;
const RANKS: u32 = 2;
const STEPS: usize = 400;
const SEEDS: u64 = 40;

/// What engines do beyond storing prompts, evicting their ends and clearing their caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Nothing.
    Plain,
    /// A block that is there is stored again, and is there until both copies are gone.
    FurtherCopies,
    /// A block is evicted while blocks after it stay, and is stored anew later.
    MiddleEvictions,
    /// A store comes before that of its parent.
    LateParents,
    /// Each engine has its own hash seed.
    OwnNames,
}

/// Which of their trees, and whether it says more than is there or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Differs {
    TreeMore,
    TreeLess,
    ConcurrentMore,
    ConcurrentLess,
}

/// What one rank holds: the copies of each block.
#[derive(Debug, Default)]
struct Cache(BTreeMap<SequenceHash, u32>);

struct World {
    dice: Dice,
    habit: Habit,
    prompts: Vec<Chain>,
    caches: BTreeMap<Rank, Cache>,
    ours: Ours,
    tree: RadixTree,
    concurrent: ThreadPoolIndexer<ConcurrentRadixTreeCompressed>,
    runtime: tokio::runtime::Runtime,
    events: u64,
}

// === impl Cache ===

impl Cache {
    fn depth(&self, chain: &Chain) -> usize {
        chain.hashes.iter().take_while(|hash| self.0.contains_key(hash)).count()
    }

    fn add(&mut self, hashes: &[SequenceHash]) {
        hashes.iter().for_each(|hash| *self.0.entry(*hash).or_default() += 1);
    }

    fn take(&mut self, hash: SequenceHash) {
        if let Some(copies) = self.0.get_mut(&hash) {
            *copies -= 1;
            if *copies == 0 {
                self.0.remove(&hash);
            }
        }
    }
}

// === impl World ===

impl World {
    fn new(seed: u64, habit: Habit) -> Self {
        let mut dice = Dice::new(seed);
        // Prompts that part from one another in many places.
        let mut prompts = vec![Chain::drawn(dice.any(), 12)];
        while prompts.len() < 24 {
            let trunk = prompts[dice.below(prompts.len())].clone();
            let shared = dice.below(trunk.len() + 1);
            prompts.push(trunk.forked(shared, dice.any(), shared + 1 + dice.below(8)));
        }
        let ranks: Vec<_> =
            (0..ENGINES).flat_map(|engine| (0..RANKS).map(move |rank| Rank { engine, rank })).collect();
        Self {
            dice,
            habit,
            prompts,
            caches: ranks.iter().map(|rank| (*rank, Cache::default())).collect(),
            ours: Ours::new(3, ranks),
            tree: RadixTree::new(),
            concurrent: ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 2, 16),
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            events: 0,
        }
    }

    fn names(&self) -> Names {
        if self.habit == Habit::OwnNames { Names::Own } else { Names::Shared }
    }

    fn tell(&mut self, rank: Rank, told: &Told) {
        self.events += 1;
        self.ours.apply(self.ours.worker(rank), &OurEvent::new(told));
        // What cannot be applied is an error of theirs that their indexers log and go on from.
        let _ = self.tree.apply_event(theirs::event(rank, self.events, told));
        self.concurrent.enqueue_event(theirs::event(rank, self.events, told)).unwrap();
    }

    fn store(&mut self, rank: Rank, chain: &Chain, part: std::ops::Range<usize>) {
        if part.is_empty() {
            return;
        }
        self.caches.get_mut(&rank).unwrap().add(&chain.hashes[part.clone()]);
        let told = stored(chain, part, self.names(), rank);
        self.tell(rank, &told);
    }

    fn step(&mut self) {
        let rank = Rank {
            engine: self.dice.below(ENGINES as usize) as u32,
            rank: self.dice.below(RANKS as usize) as u32,
        };
        let chain = self.prompts[self.dice.below(self.prompts.len())].clone();
        let depth = self.caches[&rank].depth(&chain);
        match self.dice.below(10) {
            0 if self.dice.once_in(8) => {
                self.caches.get_mut(&rank).unwrap().0.clear();
                self.tell(rank, &Told::Cleared);
            }
            0..4 => self.evict(rank, &chain, depth),
            4 if self.habit == Habit::FurtherCopies => {
                let from = self.dice.below(depth + 1);
                self.store(rank, &chain, from..depth);
            }
            4 if self.habit == Habit::LateParents && depth + 1 < chain.len() => {
                let middle = depth + 1 + self.dice.below(chain.len() - depth - 1);
                self.store(rank, &chain, middle..chain.len());
                self.store(rank, &chain, depth..middle);
            }
            _ => self.extend(rank, &chain, depth),
        }
    }

    /// An engine computes what it does not find from the prompt's start on, up to the first block that it still has.
    fn extend(&mut self, rank: Rank, chain: &Chain, depth: usize) {
        let held = |hash| self.caches[&rank].0.contains_key(hash);
        let missing = chain.hashes[depth..].iter().take_while(|hash| !held(hash)).count();
        let end = depth + if missing == 0 { 0 } else { 1 + self.dice.below(missing) };
        self.store(rank, chain, depth..end);
    }

    fn evict(&mut self, rank: Rank, chain: &Chain, depth: usize) {
        if depth == 0 {
            return;
        }
        let children: BTreeSet<_> = self
            .prompts
            .iter()
            .flat_map(|prompt| prompt.hashes.windows(2))
            .map(|pair| (pair[0], pair[1]))
            .collect();
        let cache = &self.caches[&rank];
        let is_end = |hash: &SequenceHash| {
            !children.iter().any(|(above, below)| above == hash && cache.0.contains_key(below))
        };
        let at = match self.habit {
            Habit::MiddleEvictions => self.dice.below(depth),
            _ if is_end(&chain.hashes[depth - 1]) => depth - 1,
            _ => return,
        };
        let hash = chain.hashes[at];
        self.caches.get_mut(&rank).unwrap().take(hash);
        let name = self.names().of(rank, hash.0);
        self.tell(rank, &Told::Removed(vec![name]));
    }

    /// Compares all of them on every prompt.
    fn compare(&mut self, differs: &mut BTreeSet<Differs>) {
        self.runtime.block_on(self.concurrent.flush());
        for chain in &self.prompts {
            let truth: BTreeMap<_, _> = self
                .caches
                .iter()
                .map(|(rank, cache)| (*rank, cache.depth(chain) as u32))
                .filter(|(_, depth)| *depth > 0)
                .collect();
            assert_eq!(self.ours.depths(&chain.hashes), truth, "our index is exact");
            let prompt = theirs::prompt(&chain.locals);
            let concurrent = theirs::depths(&self.concurrent.backend().find_matches(&prompt, false));
            let tree = theirs::depths(&self.tree.find_matches(prompt, false));
            for rank in self.caches.keys() {
                let depth = |depths: &BTreeMap<Rank, u32>| depths.get(rank).copied().unwrap_or(0);
                let found = [
                    (depth(&tree), Differs::TreeMore, Differs::TreeLess),
                    (depth(&concurrent), Differs::ConcurrentMore, Differs::ConcurrentLess),
                ];
                for (theirs, more, less) in found {
                    if theirs > depth(&truth) {
                        differs.insert(more);
                    }
                    if theirs < depth(&truth) {
                        differs.insert(less);
                    }
                }
            }
        }
    }
}

fn differences(habit: Habit) -> BTreeSet<Differs> {
    let mut differs = BTreeSet::new();
    for seed in 0..SEEDS {
        let mut world = World::new(seed, habit);
        for step in 0..STEPS {
            world.step();
            if step % 20 == 19 {
                world.compare(&mut differs);
            }
        }
        world.concurrent.shutdown();
    }
    differs
}

#[test]
fn their_trees_differ_from_our_index_in_the_listed_ways_only() {
    use Differs::{ConcurrentLess, ConcurrentMore, TreeLess, TreeMore};
    let expected: [(Habit, &[Differs]); 5] = [
        (Habit::Plain, &[]),
        (Habit::FurtherCopies, &[TreeLess, ConcurrentLess]),
        (Habit::MiddleEvictions, &[TreeLess, ConcurrentMore, ConcurrentLess]),
        (Habit::LateParents, &[TreeLess, ConcurrentLess]),
        (Habit::OwnNames, &[TreeMore, TreeLess, ConcurrentMore, ConcurrentLess]),
    ];
    for (habit, expected) in expected {
        assert_eq!(differences(habit), expected.iter().copied().collect(), "{habit:?}");
    }
}
