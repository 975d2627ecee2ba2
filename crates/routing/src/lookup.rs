//! The longest-prefix lookup: how deep does each worker's cache match a prompt?
//!
//! The published index is closed under prefixes: a worker that is published for a block is published for every block
//! before it, and the tier never gets faster on the way. So "worker w holds block i in tier t or a faster one" is
//! monotone in `i`, and a depth is found by bisection: about log2(blocks) page reads, not one for each block. Each read
//! tells about every worker at once, so that one search narrows them all.
//!
//! Three steps, each reading only what the ones before left open:
//! 1. the first block; if nobody holds it, nobody holds anything: one read;
//! 2. the deepest block that anybody holds;
//! 3. the workers whose exact depth can still change the outcome, as a [`Refine`] says.
//!
//! A prompt may be looked up while it still arrives: [`Lookup::advance`] goes as far as the blocks that are there allow,
//! and says whether more of them could change anything.
//!
//! The number of reads is capped. What is not known then is taken at its lower bound: a lookup never claims a block that
//! it has not seen. A page that is missing, broken or of another generation reads as empty, which can only make a match
//! shorter.

use crate::hash::SequenceHash;
use crate::page::{Generation, Holder, Holders, Page, PageBits, Slot};
use crate::tier::Tier;

/// Where the pages are.
///
/// The lookup calls this as seldom as it can: in a proxy each call crosses into the host.
pub trait PageStore {
    /// A page's bytes.
    type Bytes: AsRef<[u8]>;

    /// The bytes of a page, if there are any. They need not be checked: the lookup does.
    fn read(&mut self, page: u32) -> Option<Self::Bytes>;
}

/// Says which worker's depth is worth another read.
pub trait Refine {
    /// The index in `matches` of the worker to narrow next, or none if the rest cannot change the outcome. An index
    /// whose worker is narrowed down already ends the lookup.
    fn next(&mut self, matches: &[Match]) -> Option<usize>;
}

/// Narrows every worker down, deepest doubt first.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefineAll;

/// How many blocks of a prompt, from its start, a worker holds in each tier or a faster one. Never descending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Depths([u32; Tier::COUNT]);

/// What is known of one worker that holds the prompt's first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The worker.
    pub slot: Slot,
    /// What it holds at least: the depths that were seen.
    pub at_least: Depths,
    /// What it holds at most.
    pub at_most: Depths,
}

/// The index that is looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexShape {
    /// Pages of another generation read as empty.
    pub generation: Generation,
    /// How many pages there are.
    pub page_bits: PageBits,
}

/// What a lookup found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// The workers that hold at least the first block, ascending by slot.
    pub workers: Vec<Match>,
    /// Pages that were read.
    pub reads: u32,
    /// Whether the cap on reads ended the search.
    pub capped: bool,
}

/// What a lookup reads from, and within which limits.
pub struct Scope<'a, S, L> {
    /// The pages.
    pub store: &'a mut S,
    /// The index that they belong to.
    pub shape: IndexShape,
    /// Which slots count; holders in others are passed over.
    pub live: L,
    /// Pages that may be read in the whole lookup, the first not counted.
    pub max_reads: u32,
}

/// How much of a prompt is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent<'a> {
    /// The hashes of the blocks that are there. From one call to the next they only grow.
    pub hashes: &'a [SequenceHash],
    /// How many blocks the whole prompt has, if it is not there yet; an estimate will do.
    pub expected_blocks: Option<u32>,
}

/// Whether a lookup is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More blocks would not change the outcome.
    Done,
    /// More blocks may change the outcome.
    MoreBlocks,
}

/// A lookup in progress.
#[derive(Clone, Debug, Default)]
pub struct Lookup {
    found: Matches,
    /// Blocks in the whole prompt, by the last call.
    total: u32,
    /// The deepest block that anybody holds has at least and at most this many before it, itself included.
    deepest: (u32, u32),
    /// Whether the first block has been read.
    started: bool,
}

/// One call's share of a lookup.
struct Search<'a, 's, S, L> {
    scope: Scope<'s, S, L>,
    hashes: &'a [SequenceHash],
    found: &'a mut Matches,
    /// The holders of the block that was read last.
    holders: Vec<Holder>,
}

/// The reads are used up.
struct Capped;

/// Looks up how deep each live worker matches a whole prompt's blocks.
pub fn lookup<S: PageStore, L: Fn(Slot) -> bool>(
    scope: Scope<'_, S, L>,
    hashes: &[SequenceHash],
    refine: &mut impl Refine,
) -> Matches {
    let mut lookup = Lookup::default();
    lookup.advance(scope, Extent { hashes, expected_blocks: None }, refine);
    lookup.found
}

// === impl RefineAll ===

impl Refine for RefineAll {
    fn next(&mut self, matches: &[Match]) -> Option<usize> {
        let (i, widest) = matches.iter().enumerate().max_by_key(|(_, found)| found.doubt())?;
        (widest.doubt() > 0).then_some(i)
    }
}

// === impl Depths ===

impl Depths {
    /// The same depth in every tier: all of it is in the fastest.
    pub fn all_gpu(blocks: u32) -> Self {
        Self([blocks; Tier::COUNT])
    }

    /// Depths by tier, fastest first; a depth below that of a faster tier is raised to it.
    pub fn new(mut blocks: [u32; Tier::COUNT]) -> Self {
        let mut least = 0;
        for depth in &mut blocks {
            least = least.max(*depth);
            *depth = least;
        }
        Self(blocks)
    }

    /// Blocks that are held in this tier or a faster one.
    pub fn within(&self, tier: Tier) -> u32 {
        let [gpu, cpu, disk, external] = self.0;
        match tier {
            Tier::Gpu => gpu,
            Tier::Cpu => cpu,
            Tier::Disk => disk,
            Tier::External => external,
        }
    }

    /// Blocks that are held in any tier.
    pub fn any(&self) -> u32 {
        self.within(Tier::External)
    }
}

// === impl Match ===

impl Match {
    fn unseen(slot: Slot, blocks: u32) -> Self {
        Self { slot, at_least: Depths::default(), at_most: Depths::all_gpu(blocks) }
    }

    /// The blocks that are in doubt, in the tier where most are.
    pub fn doubt(&self) -> u32 {
        self.intervals().map(|(low, high)| high - low).max().unwrap_or(0)
    }

    /// Whether each depth is known.
    pub fn is_exact(&self) -> bool {
        self.at_least == self.at_most
    }

    fn intervals(&self) -> impl Iterator<Item = (u32, u32)> {
        self.at_least.0.into_iter().zip(self.at_most.0).map(|(low, high)| (low, high.max(low)))
    }

    /// The block, of those that are there, whose holders narrow the widest doubt.
    fn probe(&self, known_blocks: u32) -> Option<u32> {
        let within = self.intervals().map(|(low, high)| (low, high.min(known_blocks)));
        let (low, high) = within.max_by_key(|(low, high)| high.saturating_sub(*low))?;
        (high > low).then(|| low + (high - low) / 2)
    }

    /// The prompt turns out to have another number of blocks. What was only bounded by the old number is by the new.
    fn rescale(&mut self, old_total: u32, total: u32) {
        for (low, high) in self.at_least.0.iter().zip(&mut self.at_most.0) {
            if *high == old_total {
                *high = total.max(*low);
            }
        }
    }

    /// Takes in whether the worker holds block `block` and where. Pages may change between two reads, so a later read
    /// may speak against an earlier one: what was seen stays.
    fn learn(&mut self, block: u32, tier: Option<Tier>) {
        for (t, (low, high)) in Tier::ALL.into_iter().zip(self.at_least.0.iter_mut().zip(&mut self.at_most.0))
        {
            if tier.is_some_and(|tier| tier <= t) {
                *low = (*low).max(block + 1);
            } else {
                *high = (*high).min(block);
            }
            *high = (*high).max(*low);
        }
    }
}

// === impl Lookup ===

impl Lookup {
    /// Goes on as far as the blocks that are there allow.
    ///
    /// The index must be the same at each call: one of another generation needs a new lookup.
    pub fn advance<S: PageStore, L: Fn(Slot) -> bool>(
        &mut self,
        scope: Scope<'_, S, L>,
        extent: Extent<'_>,
        refine: &mut impl Refine,
    ) -> Progress {
        let known = u32::try_from(extent.hashes.len()).unwrap_or(u32::MAX);
        // While more is to come, no bound that was found can be mistaken for the open end.
        let total = extent.expected_blocks.map_or(known, |expected| expected.max(known.saturating_add(1)));
        self.rescale(total);
        let mut search = Search { scope, hashes: extent.hashes, found: &mut self.found, holders: Vec::new() };
        if !self.started {
            if known == 0 {
                return if total == 0 { Progress::Done } else { Progress::MoreBlocks };
            }
            self.started = true;
            search.begin(total);
            self.deepest = (1, total);
        }
        if search.found.workers.is_empty() {
            return Progress::Done;
        }
        search.run(&mut self.deepest, known, total, refine).unwrap_or_else(|Capped| {
            self.found.capped = true;
            Progress::Done
        })
    }

    /// What was found so far.
    pub fn matches(&self) -> &Matches {
        &self.found
    }

    fn rescale(&mut self, total: u32) {
        let old = std::mem::replace(&mut self.total, total);
        if self.started && old != total {
            self.found.workers.iter_mut().for_each(|found| found.rescale(old, total));
            if self.deepest.1 == old {
                self.deepest.1 = total.max(self.deepest.0);
            }
        }
    }
}

// === impl Search ===

impl<S: PageStore, L: Fn(Slot) -> bool> Search<'_, '_, S, L> {
    fn begin(&mut self, total: u32) {
        self.fetch(0);
        self.found.workers = self.holders.iter().map(|holder| Match::unseen(holder.slot, total)).collect();
        self.absorb(0);
    }

    fn run(
        &mut self,
        deepest: &mut (u32, u32),
        known: u32,
        total: u32,
        refine: &mut impl Refine,
    ) -> Result<Progress, Capped> {
        self.find_deepest(deepest, known, total)?;
        while let Some(found) = refine.next(&self.found.workers).and_then(|i| self.found.workers.get(i)) {
            match found.probe(known) {
                Some(block) => self.probe(block)?,
                None if found.doubt() > 0 => return Ok(Progress::MoreBlocks),
                None => break,
            };
        }
        Ok(Progress::Done)
    }

    /// Finds the deepest block that anybody holds, or that somebody holds all that are there.
    fn find_deepest(&mut self, (low, high): &mut (u32, u32), known: u32, total: u32) -> Result<(), Capped> {
        // The last block that is there tells whether the end is open. Of a whole prompt it tells no more than any other.
        if *high == total && known < total && *low < known {
            if self.probe(known - 1)? > 0 {
                *low = known;
            } else {
                *high = known - 1;
            }
        }
        while *low < (*high).min(known) {
            let middle = *low + ((*high).min(known) - *low) / 2;
            if self.probe(middle)? > 0 {
                *low = middle + 1;
            } else {
                *high = middle;
            }
        }
        Ok(())
    }

    /// Reads the holders of a block into what is known of each worker; returns how many there are.
    fn probe(&mut self, block: u32) -> Result<usize, Capped> {
        if self.found.reads >= self.scope.max_reads {
            return Err(Capped);
        }
        let holders = self.fetch(block);
        self.absorb(block);
        Ok(holders)
    }

    fn absorb(&mut self, block: u32) {
        // Both lists ascend by slot. A holder that did not hold the first block when that was read is passed over.
        let mut holders = self.holders.iter().peekable();
        for worker in &mut self.found.workers {
            while holders.next_if(|holder| holder.slot < worker.slot).is_some() {}
            let tier = holders.next_if(|holder| holder.slot == worker.slot).map(|holder| holder.tier);
            worker.learn(block, tier);
        }
    }

    /// Reads the live holders of a block; returns how many there are.
    fn fetch(&mut self, block: u32) -> usize {
        self.holders.clear();
        let Some(hash) = self.hashes.get(block as usize) else { return 0 };
        let number = self.scope.shape.page_bits.page_of(*hash);
        self.found.reads += 1;
        let Some(bytes) = self.scope.store.read(number) else { return 0 };
        let Ok(page) = Page::parse(bytes.as_ref()) else { return 0 };
        let header = page.header();
        if header.generation != self.scope.shape.generation || header.number != number {
            return 0;
        }
        let live = &self.scope.live;
        let holders = page.find(*hash).into_iter().flat_map(Holders::iter);
        self.holders.extend(holders.filter(|holder| live(holder.slot)));
        self.holders.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::page::{PageHeader, PageWriter};

    const SHAPE: IndexShape = IndexShape { generation: Generation(3), page_bits: PageBits::new(4).unwrap() };

    /// Pages in a map, and how often they were read.
    struct Pages(BTreeMap<u32, Vec<u8>>);

    impl PageStore for Pages {
        type Bytes = Vec<u8>;

        fn read(&mut self, page: u32) -> Option<Vec<u8>> {
            self.0.get(&page).cloned()
        }
    }

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    fn hashes(blocks: u32) -> Vec<SequenceHash> {
        (0..blocks).map(|i| SequenceHash(u64::from(i).wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()
    }

    /// Pages in which worker `i` matches `hashes` as deep as `depths[i]` says.
    fn publish(hashes: &[SequenceHash], depths: &[Depths]) -> Pages {
        let mut by_page: BTreeMap<u32, BTreeMap<SequenceHash, Vec<Holder>>> = BTreeMap::new();
        for (block, hash) in hashes.iter().enumerate() {
            let record = by_page.entry(SHAPE.page_bits.page_of(*hash)).or_default().entry(*hash).or_default();
            for (i, depth) in depths.iter().enumerate() {
                let tier = Tier::ALL.into_iter().find(|tier| depth.within(*tier) as usize > block);
                record.extend(tier.map(|tier| Holder { slot: slot(i as u16), tier }));
            }
        }
        let page = |(number, records): (u32, BTreeMap<SequenceHash, Vec<Holder>>)| {
            let mut writer = PageWriter::default();
            records.into_iter().for_each(|(hash, holders)| writer.record(hash, holders));
            (number, writer.finish(PageHeader { number, generation: SHAPE.generation, version: 1 }))
        };
        Pages(by_page.into_iter().map(page).collect())
    }

    fn scope<S: PageStore>(store: &mut S, max_reads: u32) -> Scope<'_, S, fn(Slot) -> bool> {
        Scope { store, shape: SHAPE, live: |_| true, max_reads }
    }

    fn look(pages: &mut Pages, hashes: &[SequenceHash], max_reads: u32) -> Matches {
        lookup(scope(pages, max_reads), hashes, &mut RefineAll)
    }

    fn any_depths() -> impl Strategy<Value = Vec<Depths>> {
        let depths = (0..100u32, 0..30u32, 0..30u32, 0..30u32).prop_map(|(gpu, cpu, disk, external)| {
            Depths::new([gpu, gpu + cpu, gpu + cpu + disk, gpu + cpu + disk + external])
        });
        proptest::collection::vec(depths, 0..12)
    }

    proptest! {
        #[test]
        fn finds_each_workers_exact_depth_in_each_tier(depths in any_depths(), blocks in 0..120u32) {
            let hashes = hashes(blocks);
            let mut pages = publish(&hashes, &depths);
            let found = look(&mut pages, &hashes, u32::MAX);
            let clip = |depth: &Depths| Depths::new(depth.0.map(|tier| tier.min(blocks)));
            let expected: Vec<_> = depths.iter().map(clip).enumerate().filter(|(_, d)| d.any() > 0).collect();
            prop_assert_eq!(found.workers.len(), expected.len());
            for (found, (i, depth)) in found.workers.iter().zip(expected) {
                prop_assert_eq!((found.slot, found.at_least, found.at_most), (slot(i as u16), depth, depth));
            }
        }

        #[test]
        fn a_cap_on_reads_never_claims_more_than_is_held(depths in any_depths(), blocks in 1..120u32, cap in 1..20u32) {
            let hashes = hashes(blocks);
            let mut pages = publish(&hashes, &depths);
            let found = look(&mut pages, &hashes, cap);
            prop_assert!(found.reads <= cap);
            for found in &found.workers {
                let truth = depths[usize::from(found.slot.number())];
                for tier in Tier::ALL {
                    let held = truth.within(tier).min(blocks);
                    prop_assert!(found.at_least.within(tier) <= held && held <= found.at_most.within(tier));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_prompt_that_arrives_in_parts_is_matched_as_if_it_had_come_at_once(
            depths in any_depths(),
            steps in proptest::collection::vec((1..40u32, 0..200u32), 1..8),
        ) {
            let blocks: u32 = steps.iter().map(|(step, _)| step).sum();
            let hashes = hashes(blocks);
            let mut pages = publish(&hashes, &depths);
            let at_once = look(&mut pages, &hashes, u32::MAX);
            let (mut lookup, mut known) = (Lookup::default(), 0);
            for (step, guess) in steps {
                known += step;
                let hashes = &hashes[..known as usize];
                let expected_blocks = (known < blocks).then_some(guess);
                let extent = Extent { hashes, expected_blocks };
                let progress = lookup.advance(scope(&mut pages, u32::MAX), extent, &mut RefineAll);
                if progress == Progress::Done {
                    break;
                }
                // Somebody holds all that is there, so more may matter.
                prop_assert!(known < blocks && lookup.matches().workers.iter().any(|m| m.at_least.any() == known));
            }
            prop_assert_eq!(&lookup.matches().workers, &at_once.workers);
        }
    }

    #[test]
    fn a_long_prompt_is_done_at_the_first_block_that_nobody_holds() {
        let hashes = hashes(400);
        let mut pages = publish(&hashes, &[Depths::all_gpu(90), Depths::all_gpu(120)]);
        let mut lookup = Lookup::default();
        let mut advance = |known: usize| {
            let extent = Extent { hashes: &hashes[..known], expected_blocks: Some(400) };
            lookup.advance(scope(&mut pages, 64), extent, &mut RefineAll)
        };
        assert_eq!(advance(0), Progress::MoreBlocks);
        assert_eq!(advance(100), Progress::MoreBlocks);
        assert_eq!(advance(130), Progress::Done);
        let depths: Vec<_> = lookup.matches().workers.iter().map(|found| found.at_least.any()).collect();
        assert_eq!(depths, [90, 120]);
    }

    #[test]
    fn a_cold_prompt_costs_one_read() {
        let hashes = hashes(512);
        let found = look(&mut publish(&hashes, &[]), &hashes, 64);
        assert_eq!(found, Matches { workers: vec![], reads: 1, capped: false });
    }

    #[test]
    fn one_warm_worker_of_512_blocks_costs_about_ten_reads() {
        let hashes = hashes(512);
        let found = look(&mut publish(&hashes, &[Depths::all_gpu(300)]), &hashes, 64);
        assert_eq!(found.workers[0].at_least, Depths::all_gpu(300));
        assert!(found.reads <= 11, "{} reads", found.reads);
    }

    #[test]
    fn slots_that_are_not_live_count_for_nothing() {
        let hashes = hashes(64);
        let mut pages = publish(&hashes, &[Depths::all_gpu(60), Depths::all_gpu(20)]);
        let scope = Scope { store: &mut pages, shape: SHAPE, live: |s| s == slot(1), max_reads: 64 };
        let found = lookup(scope, &hashes, &mut RefineAll);
        assert_eq!(
            found.workers,
            [Match { slot: slot(1), at_least: Depths::all_gpu(20), at_most: Depths::all_gpu(20) }]
        );
    }

    #[test]
    fn pages_of_another_generation_or_number_and_broken_pages_read_as_empty() {
        let hashes = hashes(8);
        let shape = IndexShape { generation: Generation(4), ..SHAPE };
        let mut pages = publish(&hashes, &[Depths::all_gpu(8)]);
        let foreign = Scope { shape, ..scope(&mut pages, 64) };
        assert!(lookup(foreign, &hashes, &mut RefineAll).workers.is_empty());

        let first = SHAPE.page_bits.page_of(hashes[0]);
        let other =
            pages.0.values().find(|page| Page::parse(page).unwrap().header().number != first).cloned();
        pages.0.insert(first, other.unwrap());
        assert!(look(&mut pages, &hashes, 64).workers.is_empty());
        pages.0.insert(first, b"WRPG but not a page".to_vec());
        assert!(look(&mut pages, &hashes, 64).workers.is_empty());
    }

    #[test]
    fn a_page_that_changes_between_two_reads_neither_panics_nor_hangs() {
        struct Flicker(Pages, bool);
        impl PageStore for Flicker {
            type Bytes = Vec<u8>;
            fn read(&mut self, page: u32) -> Option<Vec<u8>> {
                self.1 = !self.1;
                if self.1 { self.0.read(page) } else { None }
            }
        }
        let hashes = hashes(100);
        let mut store = Flicker(publish(&hashes, &[Depths::all_gpu(90), Depths::all_gpu(10)]), false);
        let found = lookup(scope(&mut store, 64), &hashes, &mut RefineAll);
        assert!(!found.capped && found.workers.iter().all(|found| found.at_least.any() <= 90));
    }
}
