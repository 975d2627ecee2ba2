//! The longest-prefix lookup: how deep does each worker's cache match a prompt?
//!
//! The published index is closed under prefixes: a worker that is published for a block is published for every block
//! before it, and the tier never gets faster on the way. So "worker w holds block i in tier t or a faster one" is
//! monotone in `i`, and a depth is found by bisection: about log2(blocks) probes, not one for each block. Blocks of one run
//! share a page (see the `page` module), so that the last probes of a search need no further read: some log2(blocks / 16)
//! reads are left. Each probe tells about every worker at once, so that one search narrows them all.
//!
//! Three steps, each reading only what the ones before left open:
//! 1. the first block; if nobody holds it, nobody holds anything: one read;
//! 2. the deepest block that anybody holds;
//! 3. the workers whose exact depth can still change the outcome, as a [`Refine`] says.
//!
//! A prompt may be looked up while it still arrives: [`Lookup::advance`] goes as far as the blocks that are there allow,
//! and says whether more of them could change anything.
//!
//! What a worker is known to hold although the index does not say so yet is taken as given ([`Lookup::assume`]): its depth
//! is the larger of the two, so that a block never counts twice.
//!
//! The number of reads is capped. What is not known then is taken at its lower bound: a lookup never claims a block that
//! it has not seen. A page that is missing, broken or of another generation reads as empty, which can only make a match
//! shorter.

use smallvec::SmallVec;

use crate::hash::SequenceHash;
use crate::page::{Generation, Holders, Page, PageBits, RUN_BLOCKS, Record, Slot};
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

/// What a worker holds of a prompt whatever the index says: it was just sent there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The worker.
    pub slot: Slot,
    /// The depth that its depth in each tier is raised to, in blocks; at most those that are there.
    pub blocks: u32,
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
    /// What is taken as given.
    floors: Vec<Floor>,
}

/// One call's share of a lookup.
struct Search<'a, 's, S: PageStore, L> {
    scope: Scope<'s, S, L>,
    hashes: &'a [SequenceHash],
    found: &'a mut Matches,
    pages: PagesRead<S::Bytes>,
}

/// The pages that were read in a call, by number. What was not there stays so until the call ends.
struct PagesRead<B>(Vec<(u32, Option<B>)>);

/// Blocks that were probed. A bisection has some fifteen.
type Probed = SmallVec<[u32; 16]>;

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

/// Whether the index has the last of these blocks, a prompt's first ones, for a worker. One read, or two in a crowded run.
pub fn is_published<S: PageStore>(
    store: &mut S,
    shape: IndexShape,
    hashes: &[SequenceHash],
    slot: Slot,
) -> bool {
    let Some(last) = hashes.len().checked_sub(1).and_then(|last| u32::try_from(last).ok()) else {
        return false;
    };
    let mut scope = Scope { store, shape, live: (), max_reads: u32::MAX };
    let mut pages = PagesRead(Vec::new());
    let record = pages.record(&mut scope, &mut 0, hashes, last);
    record.is_ok_and(|record| {
        record.is_some_and(|record| record.holders.iter().any(|holder| holder.slot == slot))
    })
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

    /// It holds at least so many blocks, in the fastest tier.
    fn raise(&mut self, blocks: u32) {
        for (low, high) in self.at_least.0.iter_mut().zip(&mut self.at_most.0) {
            *low = (*low).max(blocks);
            *high = (*high).max(*low);
        }
    }

    /// It holds no more than the first `blocks`, but for what was seen.
    fn bound(&mut self, blocks: u32) {
        for (low, high) in self.at_least.0.iter().zip(&mut self.at_most.0) {
            *high = (*high).min(blocks).max(*low);
        }
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
        // Without a branch for each tier: this is done for each worker at each probe.
        let first_held = tier.map_or(Tier::COUNT, |tier| tier as usize);
        for (t, (low, high)) in self.at_least.0.iter_mut().zip(&mut self.at_most.0).enumerate() {
            let is_held = t >= first_held;
            *low = (*low).max(if is_held { block + 1 } else { 0 });
            *high = (*high).min(if is_held { u32::MAX } else { block }).max(*low);
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
        let mut search =
            Search { scope, hashes: extent.hashes, found: &mut self.found, pages: PagesRead(Vec::new()) };
        if !self.started {
            if known == 0 {
                return if total == 0 { Progress::Done } else { Progress::MoreBlocks };
            }
            self.started = true;
            search.begin(total);
            self.deepest = if search.found.workers.is_empty() { (0, 0) } else { (1, total) };
        }
        search.raise(&self.floors, &mut self.deepest);
        if search.found.workers.is_empty() {
            return Progress::Done;
        }
        search.run(&mut self.deepest, known, total, refine).unwrap_or_else(|Capped| {
            self.found.capped = true;
            Progress::Done
        })
    }

    /// Takes as given, from the next call on, that these workers hold so much; of several for one worker the deepest counts.
    pub fn assume(&mut self, floors: &[Floor]) {
        self.floors.clear();
        self.floors.extend_from_slice(floors);
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
        let record = self.pages.record(&mut self.scope, &mut self.found.reads, self.hashes, 0);
        let Ok(Some(record)) = record else { return };
        let live = &self.scope.live;
        let slots = record.holders.iter().map(|holder| holder.slot).filter(|slot| live(*slot));
        self.found.workers = slots.map(|slot| Match::unseen(slot, total)).collect();
        absorb(&mut self.found.workers, 0, Some(record.holders));
    }

    /// Raises what is known of each worker to what is taken as given. A worker that the index does not know for the first
    /// block is known no deeper than that.
    fn raise(&mut self, floors: &[Floor], (low, high): &mut (u32, u32)) {
        let live = &self.scope.live;
        for floor in floors.iter().filter(|floor| floor.blocks > 0 && live(floor.slot)) {
            let depths = Depths::all_gpu(floor.blocks);
            match self.found.workers.binary_search_by_key(&floor.slot, |found| found.slot) {
                Ok(i) => {
                    if let Some(found) = self.found.workers.get_mut(i) {
                        found.raise(floor.blocks);
                    }
                }
                Err(i) => self
                    .found
                    .workers
                    .insert(i, Match { slot: floor.slot, at_least: depths, at_most: depths }),
            }
            *low = (*low).max(floor.blocks);
            *high = (*high).max(*low);
        }
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
    fn find_deepest(&mut self, deepest: &mut (u32, u32), known: u32, total: u32) -> Result<(), Capped> {
        let mut held = SmallVec::new();
        let end = self.bisect(&mut held, deepest, known, total);
        self.take_in(&held, deepest.1);
        end
    }

    fn bisect(
        &mut self,
        held: &mut Probed,
        (low, high): &mut (u32, u32),
        known: u32,
        total: u32,
    ) -> Result<(), Capped> {
        // The last block that is there tells whether the end is open. Of a whole prompt it tells no more than any other.
        if *high == total && known < total && *low < known {
            if self.is_held(known - 1)? {
                held.push(known - 1);
                *low = known;
            } else {
                *high = known - 1;
            }
        }
        while *low < (*high).min(known) {
            let middle = *low + ((*high).min(known) - *low) / 2;
            if self.is_held(middle)? {
                held.push(middle);
                *low = middle + 1;
            } else {
                *high = middle;
            }
        }
        Ok(())
    }

    /// Whether one of the workers holds a block.
    fn is_held(&mut self, block: u32) -> Result<bool, Capped> {
        let record = self.pages.record(&mut self.scope, &mut self.found.reads, self.hashes, block)?;
        let workers = &self.found.workers;
        let is_known = |slot: Slot| workers.binary_search_by_key(&slot, |worker| worker.slot).is_ok();
        Ok(record.is_some_and(|record| record.holders.iter().any(|holder| is_known(holder.slot))))
    }

    /// Takes in who holds the blocks that somebody was found to hold, and that nobody holds the block after the first
    /// `high`. Their pages have been read.
    fn take_in(&mut self, held: &Probed, high: u32) {
        for worker in &mut self.found.workers {
            worker.bound(high);
        }
        // From the deepest on: whoever holds that one on the GPU holds the others too.
        for block in held.iter().rev() {
            if self.found.workers.iter().any(|worker| worker.at_least.within(Tier::Gpu) <= *block) {
                let _ = self.probe(*block);
            }
        }
    }

    /// Takes what is told of a block into what is known of each worker.
    fn probe(&mut self, block: u32) -> Result<(), Capped> {
        let record = self.pages.record(&mut self.scope, &mut self.found.reads, self.hashes, block)?;
        absorb(&mut self.found.workers, block, record.map(|record| record.holders));
        Ok(())
    }
}

/// Takes in who holds a block. A worker that did not hold the first block when that was read is passed over.
fn absorb(workers: &mut [Match], block: u32, holders: Option<Holders<'_>>) {
    // Both lists ascend by slot.
    let mut holders = holders.map(Holders::iter).into_iter().flatten();
    let mut next = holders.next();
    for worker in workers {
        while next.is_some_and(|holder| holder.slot < worker.slot) {
            next = holders.next();
        }
        let tier = next.filter(|holder| holder.slot == worker.slot).map(|holder| holder.tier);
        worker.learn(block, tier);
    }
}

// === impl PagesRead ===

impl<B: AsRef<[u8]>> PagesRead<B> {
    /// What is told of a block, in the page of its run or, if the run is crowded, in its own.
    fn record<S: PageStore<Bytes = B>, L>(
        &mut self,
        scope: &mut Scope<'_, S, L>,
        reads: &mut u32,
        hashes: &[SequenceHash],
        block: u32,
    ) -> Result<Option<Record<'_>>, Capped> {
        let place = block % RUN_BLOCKS;
        let (Some(hash), Some(head)) = (hashes.get(block as usize), hashes.get((block - place) as usize))
        else {
            return Ok(None);
        };
        let bits = scope.shape.page_bits;
        let of_run = self.read(scope, reads, bits.page_of(*head))?;
        // Most often it is there, so the head's record is asked only where it is not.
        let is_elsewhere = self.page(of_run, scope.shape).is_some_and(|page| {
            place > 0 && page.find(*hash).is_none() && page.find(*head).is_some_and(|head| head.crowded)
        });
        let own = if is_elsewhere { self.read(scope, reads, bits.page_of(*hash))? } else { of_run };
        Ok(self.page(own, scope.shape).and_then(|page| page.find(*hash)))
    }

    /// Reads a page, unless that was done before; returns its place in the list.
    fn read<S: PageStore<Bytes = B>, L>(
        &mut self,
        scope: &mut Scope<'_, S, L>,
        reads: &mut u32,
        number: u32,
    ) -> Result<usize, Capped> {
        if let Some(place) = self.0.iter().position(|(read, _)| *read == number) {
            return Ok(place);
        }
        // The first page is read whatever the cap is.
        if *reads > 0 && *reads >= scope.max_reads {
            return Err(Capped);
        }
        *reads += 1;
        self.0.push((number, scope.store.read(number)));
        Ok(self.0.len() - 1)
    }

    fn page(&self, place: usize, shape: IndexShape) -> Option<Page<'_>> {
        let (number, bytes) = self.0.get(place)?;
        let page = Page::parse(bytes.as_ref()?.as_ref()).ok()?;
        let header = page.header();
        (header.generation == shape.generation && header.number == *number).then_some(page)
    }
}

#[cfg(test)]
mod tests;
