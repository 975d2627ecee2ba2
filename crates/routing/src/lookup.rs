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
//! 2. the deepest block that anybody holds, of all that are there first: two reads for a prompt that is asked again;
//! 3. the workers whose exact depth can still change the outcome, as a [`Refine`] says.
//!
//! Workers are looked at one by one only where it matters: those that hold the deepest block come first, then those that
//! hold the deepest of the other blocks that were probed, and so on. Of whoever has not been looked at it is known that it
//! holds no more than what was looked at last.
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

use crate::hash::SequenceHash;
use crate::page::{Generation, PageBits, Slot};

mod matches;
mod pages_read;
mod search;

pub use self::matches::{Depths, Match};
use self::pages_read::PagesRead;
use self::search::{Probed, Search};

/// Where the pages are.
///
/// The lookup calls this as seldom as it can: in a proxy each call crosses into the host.
pub trait PageStore {
    /// A page's bytes.
    type Bytes: AsRef<[u8]>;

    /// The bytes of a page, if there are any. They need not be checked: the lookup does.
    fn read(&mut self, page: u32) -> Option<Self::Bytes>;
}

/// Says what is worth another look.
pub trait Refine {
    /// What to find out next, if anything can still change the outcome. Workers that are not among the `matches` hold at
    /// most the first `others` blocks.
    fn next(&mut self, matches: &[Match], others: u32) -> Next;
}

/// What is to be found out next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Done,
    /// The depth of the worker with this index in the matches. If it is known already, or there is none, that is all.
    Narrow(usize),
    /// Who holds most of all that are not among the matches: all who hold the deepest block that was probed. If nobody holds
    /// anything, that is all.
    Open,
    /// The same, but a few of them will do: which ones, is spread by this number.
    OpenSome(u64),
}

/// Narrows every worker down, deepest doubt first.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefineAll;

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
    /// The workers that have been looked at, ascending by slot; each holds at least the first block.
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
    known: Known,
    /// Blocks in the whole prompt, by the last call.
    total: u32,
    /// Whether the first block has been read.
    started: bool,
    /// What is taken as given.
    floors: Vec<Floor>,
}

/// What is known from one call to the next.
#[derive(Clone, Debug, Default)]
struct Known {
    found: Matches,
    /// The deepest block that anybody holds has at least and at most this many before it, itself included.
    deepest: (u32, u32),
    /// Blocks that somebody was found to hold, ascending, and whose holders are not all among the matches.
    unopened: Probed,
    /// The last block whose holders were taken among the matches.
    opened: Option<u32>,
}

/// Looks up how deep each live worker matches a whole prompt's blocks.
pub fn lookup<S: PageStore, L: Fn(Slot) -> bool>(
    scope: Scope<'_, S, L>,
    hashes: &[SequenceHash],
    refine: &mut impl Refine,
) -> Matches {
    let mut lookup = Lookup::default();
    lookup.advance(scope, Extent { hashes, expected_blocks: None }, refine);
    lookup.known.found
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
    let mut pages = PagesRead::default();
    let record = pages.record(&mut scope, &mut 0, hashes, last);
    record.is_ok_and(|record| {
        record.is_some_and(|record| record.holders.iter().any(|holder| holder.slot == slot))
    })
}

// === impl RefineAll ===

impl Refine for RefineAll {
    fn next(&mut self, matches: &[Match], others: u32) -> Next {
        if others > 0 {
            return Next::Open;
        }
        let widest = matches.iter().enumerate().max_by_key(|(_, found)| found.doubt());
        widest.filter(|(_, found)| found.doubt() > 0).map_or(Next::Done, |(i, _)| Next::Narrow(i))
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
            Search { scope, hashes: extent.hashes, known: &mut self.known, pages: PagesRead::default() };
        if !self.started {
            if known == 0 {
                return if total == 0 { Progress::Done } else { Progress::MoreBlocks };
            }
            self.started = true;
            search.begin(total);
        }
        search.raise(&self.floors);
        if search.known.is_nothing() { Progress::Done } else { search.run(total, refine) }
    }

    /// Takes as given, from the next call on, that these workers hold so much; of several for one worker the deepest counts.
    pub fn assume(&mut self, floors: &[Floor]) {
        self.floors.clear();
        self.floors.extend_from_slice(floors);
    }

    /// What was found so far.
    pub fn matches(&self) -> &Matches {
        &self.known.found
    }

    /// Workers that are not among the matches hold at most so many blocks.
    pub fn others(&self) -> u32 {
        self.known.others()
    }

    fn rescale(&mut self, total: u32) {
        let old = std::mem::replace(&mut self.total, total);
        if self.started && old != total {
            let Known { found, deepest: (low, high), .. } = &mut self.known;
            found.workers.iter_mut().for_each(|found| found.rescale(old, total));
            if *high == old {
                *high = total.max(*low);
            }
        }
    }
}

// === impl Known ===

impl Known {
    /// Workers that are not among the matches hold at most so many blocks.
    fn others(&self) -> u32 {
        if self.unopened.is_empty() { 0 } else { self.opened.unwrap_or(self.deepest.1) }
    }

    /// Nobody holds anything.
    fn is_nothing(&self) -> bool {
        self.found.workers.is_empty() && self.unopened.is_empty()
    }
}

#[cfg(test)]
mod tests;
