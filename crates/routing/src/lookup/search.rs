//! One call's share of a lookup.

use smallvec::SmallVec;

use super::pages_read::{Capped, PagesRead};
use super::{Floor, Known, Match, Next, PageStore, Progress, Refine, Scope};
use crate::hash::SequenceHash;
use crate::page::{Holders, Slot};
use crate::tier::Tier;

/// Blocks that were found to be held by anybody, ascending. A bisection has some fifteen.
pub(super) type Probed = SmallVec<[u32; 16]>;

/// As many workers as are a good choice behind the best one.
const SOME: usize = 16;

/// The pages and the blocks, and what is known of them.
pub(super) struct Search<'a, 's, S: PageStore, L> {
    pub(super) scope: Scope<'s, S, L>,
    pub(super) hashes: &'a [SequenceHash],
    pub(super) known: &'a mut Known,
    pub(super) pages: PagesRead<S::Bytes>,
}

// === impl Search ===

impl<S: PageStore, L: Fn(Slot) -> bool> Search<'_, '_, S, L> {
    /// Looks for the first block. Of a prompt of `total` blocks, whoever holds it may hold all.
    pub(super) fn begin(&mut self, total: u32) {
        if self.is_held(0).unwrap_or(false) {
            self.known.deepest = (1, total);
            self.known.unopened.push(0);
        }
    }

    /// Raises what is known of each worker to what is taken as given.
    pub(super) fn raise(&mut self, floors: &[Floor]) {
        for floor in floors.iter().filter(|floor| floor.blocks > 0) {
            if !(self.scope.live)(floor.slot) {
                continue;
            }
            let i = match find(&self.known.found.workers, floor.slot) {
                Ok(i) => i,
                Err(i) => {
                    let at_most = self.most(floor.slot);
                    self.known.found.workers.insert(i, Match::unseen(floor.slot, at_most));
                    i
                }
            };
            if let Some(found) = self.known.found.workers.get_mut(i) {
                found.raise(floor.blocks);
            }
            let (low, high) = &mut self.known.deepest;
            *low = (*low).max(floor.blocks);
            *high = (*high).max(*low);
        }
    }

    /// How many blocks a worker that is not among the matches may hold.
    fn most(&mut self, slot: Slot) -> u32 {
        let others = self.known.others();
        if others == 0 {
            return 0;
        }
        let record = self.pages.record(&mut self.scope, &mut self.known.found.reads, self.hashes, 0);
        let holds_first = record.map(|record| {
            record.is_some_and(|record| record.holders.iter().any(|holder| holder.slot == slot))
        });
        if holds_first.unwrap_or(true) { others } else { 0 }
    }

    /// Goes on as far as the blocks that are there, of `total`, allow.
    pub(super) fn run(&mut self, total: u32, refine: &mut impl Refine) -> Progress {
        let known_blocks = u32::try_from(self.hashes.len()).unwrap_or(u32::MAX);
        let progress = self
            .find_deepest(known_blocks, total)
            .and_then(|()| self.refine(known_blocks, refine))
            .unwrap_or_else(|Capped| {
                self.known.found.capped = true;
                Progress::Done
            });
        if self.known.found.capped {
            // No more pages, but all that the ones that were read say.
            while !self.known.unopened.is_empty() && self.open(usize::MAX, 0).is_ok() {}
        }
        progress
    }

    fn refine(&mut self, known_blocks: u32, refine: &mut impl Refine) -> Result<Progress, Capped> {
        loop {
            let matches = &self.known.found.workers;
            match refine.next(matches, self.known.others()) {
                Next::Done => return Ok(Progress::Done),
                Next::Open | Next::OpenSome(_) if self.known.unopened.is_empty() => {
                    return Ok(Progress::Done);
                }
                Next::Open => self.open(usize::MAX, 0)?,
                Next::OpenSome(spread) => self.open(SOME, spread)?,
                Next::Narrow(i) => {
                    let Some(found) = matches.get(i) else { return Ok(Progress::Done) };
                    match found.probe(known_blocks) {
                        Some(block) => self.probe(block)?,
                        None if found.doubt() > 0 => return Ok(Progress::MoreBlocks),
                        None => return Ok(Progress::Done),
                    }
                }
            }
        }
    }

    /// Finds the deepest block that anybody holds, or that somebody holds all that are there.
    fn find_deepest(&mut self, known_blocks: u32, total: u32) -> Result<(), Capped> {
        let mut held = Probed::new();
        let end = self.bisect(&mut held, known_blocks, total);
        let high = self.known.deepest.1;
        for worker in &mut self.known.found.workers {
            worker.bound(high);
        }
        self.take_in(&held);
        // Whoever holds these was looked at before, if anybody was.
        if self.known.opened.is_none() {
            self.known.unopened.extend(held);
        }
        end
    }

    fn bisect(&mut self, held: &mut Probed, known_blocks: u32, total: u32) -> Result<(), Capped> {
        let (mut low, mut high) = self.known.deepest;
        // The last block that is there tells whether the end is open; of a whole prompt, whether somebody holds all of it, as
        // it is where a prompt is asked again.
        let mut middle = if high == total && low < known_blocks {
            known_blocks - 1
        } else {
            mean(low, high, known_blocks)
        };
        let mut end = Ok(());
        while low < high.min(known_blocks) {
            match self.is_held(middle) {
                Ok(true) => {
                    held.push(middle);
                    low = middle + 1;
                }
                Ok(false) => high = middle,
                Err(capped) => {
                    end = Err(capped);
                    break;
                }
            }
            middle = mean(low, high, known_blocks);
        }
        self.known.deepest = (low, high);
        end
    }

    /// Whether a worker that counts holds a block.
    fn is_held(&mut self, block: u32) -> Result<bool, Capped> {
        let reads = &mut self.known.found.reads;
        let record = self.pages.record(&mut self.scope, reads, self.hashes, block)?;
        let live = &self.scope.live;
        Ok(record.is_some_and(|record| record.holders.iter().any(|holder| live(holder.slot))))
    }

    /// Takes in, of the workers among the matches, which of these blocks they hold, from the deepest on: whoever holds that one
    /// on the GPU holds the others too. Their pages have been read.
    fn take_in(&mut self, held: &[u32]) {
        let on_gpu = |worker: &Match| worker.at_least.within(Tier::Gpu);
        for block in held.iter().rev() {
            let least = self.known.found.workers.iter().map(on_gpu).min();
            if least.is_none_or(|least| least > *block) {
                return;
            }
            let _ = self.probe(*block);
        }
    }

    /// Takes workers that hold the deepest block whose holders are not all among the matches: all of them, or `most` where
    /// there are more, `spread` says which.
    fn open(&mut self, most: usize, spread: u64) -> Result<(), Capped> {
        let Some(block) = self.known.unopened.last().copied() else { return Ok(()) };
        let at_most = self.known.others();
        let Known { found, .. } = &mut *self.known;
        let record = self.pages.record(&mut self.scope, &mut found.reads, self.hashes, block)?;
        let workers = &mut found.workers;
        absorb(workers, block, record.map(|record| record.holders));
        let (live, known) = (&self.scope.live, workers.len());
        let mut is_all = true;
        if let Some(holders) = record.map(|record| record.holders) {
            let count = holders.iter().len();
            workers.reserve(count.min(most));
            let start = if count > most { spread.checked_rem(count as u64).unwrap_or(0) as usize } else { 0 };
            for part in [start..count, 0..start] {
                for holder in holders.iter().skip(part.start).take(part.len()) {
                    if !live(holder.slot)
                        || workers.get(..known).is_some_and(|known| find(known, holder.slot).is_ok())
                    {
                        continue;
                    }
                    if workers.len() - known == most {
                        is_all = false;
                        break;
                    }
                    workers.push(Match::holder(holder.slot, block, holder.tier, at_most));
                }
            }
            if known > 0 || start > 0 {
                workers.sort_by_key(|found| found.slot);
            }
        }
        if is_all {
            self.known.unopened.pop();
            self.known.opened = Some(block);
        }
        // How much of it they hold in faster tiers.
        let shallower = std::mem::take(&mut self.known.unopened);
        self.take_in(&shallower);
        self.known.unopened = shallower;
        Ok(())
    }

    /// Takes what is told of a block into what is known of each worker among the matches.
    fn probe(&mut self, block: u32) -> Result<(), Capped> {
        let found = &mut self.known.found;
        let record = self.pages.record(&mut self.scope, &mut found.reads, self.hashes, block)?;
        absorb(&mut found.workers, block, record.map(|record| record.holders));
        Ok(())
    }
}

/// Where a worker is among the matches, or belongs.
fn find(workers: &[Match], slot: Slot) -> Result<usize, usize> {
    workers.binary_search_by_key(&slot, |found| found.slot)
}

/// The block in the middle of those in doubt, of those that are there.
fn mean(low: u32, high: u32, known_blocks: u32) -> u32 {
    low + high.min(known_blocks).saturating_sub(low) / 2
}

/// Takes in who holds a block.
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
