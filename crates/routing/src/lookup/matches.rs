//! What is known of one worker.

use crate::page::Slot;
use crate::tier::Tier;

/// How many blocks of a prompt, from its start, a worker holds in each tier or a faster one. Never descending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Depths(pub(super) [u32; Tier::COUNT]);

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
    pub(super) fn unseen(slot: Slot, blocks: u32) -> Self {
        Self { slot, at_least: Depths::default(), at_most: Depths::all_gpu(blocks) }
    }

    /// A worker that holds block `block` in this tier, and no more than the first `at_most` blocks.
    pub(super) fn holder(slot: Slot, block: u32, tier: Tier, at_most: u32) -> Self {
        let mut found =
            Self { slot, at_least: Depths::all_gpu(block + 1), at_most: Depths::all_gpu(at_most) };
        let faster = tier as usize;
        if faster > 0 {
            for (low, high) in found.at_least.0.iter_mut().zip(&mut found.at_most.0).take(faster) {
                (*low, *high) = (0, block);
            }
        }
        found
    }

    /// The blocks that are in doubt, in the tier where most are.
    pub fn doubt(&self) -> u32 {
        self.intervals().map(|(low, high)| high - low).max().unwrap_or(0)
    }

    /// Whether each depth is known.
    #[inline]
    pub fn is_exact(&self) -> bool {
        self.at_least == self.at_most
    }

    fn intervals(&self) -> impl Iterator<Item = (u32, u32)> {
        self.at_least.0.into_iter().zip(self.at_most.0).map(|(low, high)| (low, high.max(low)))
    }

    /// The block, of those that are there, whose holders narrow the widest doubt.
    pub(super) fn probe(&self, known_blocks: u32) -> Option<u32> {
        let within = self.intervals().map(|(low, high)| (low, high.min(known_blocks)));
        let (low, high) = within.max_by_key(|(low, high)| high.saturating_sub(*low))?;
        (high > low).then(|| low + (high - low) / 2)
    }

    /// It holds at least so many blocks, in the fastest tier.
    pub(super) fn raise(&mut self, blocks: u32) {
        for (low, high) in self.at_least.0.iter_mut().zip(&mut self.at_most.0) {
            *low = (*low).max(blocks);
            *high = (*high).max(*low);
        }
    }

    /// It holds no more than the first `blocks`, but for what was seen.
    pub(super) fn bound(&mut self, blocks: u32) {
        for (low, high) in self.at_least.0.iter().zip(&mut self.at_most.0) {
            *high = (*high).min(blocks).max(*low);
        }
    }

    /// The prompt turns out to have another number of blocks. What was only bounded by the old number is by the new.
    pub(super) fn rescale(&mut self, old_total: u32, total: u32) {
        for (low, high) in self.at_least.0.iter().zip(&mut self.at_most.0) {
            if *high == old_total {
                *high = total.max(*low);
            }
        }
    }

    /// Takes in whether the worker holds block `block` and where. Pages may change between two reads, so a later read
    /// may speak against an earlier one: what was seen stays.
    pub(super) fn learn(&mut self, block: u32, tier: Option<Tier>) {
        // Without a branch for each tier: this is done for each worker at each probe.
        let first_held = tier.map_or(Tier::COUNT, |tier| tier as usize);
        for (t, (low, high)) in self.at_least.0.iter_mut().zip(&mut self.at_most.0).enumerate() {
            let is_held = t >= first_held;
            *low = (*low).max(if is_held { block + 1 } else { 0 });
            *high = (*high).min(if is_held { u32::MAX } else { block }).max(*low);
        }
    }
}
