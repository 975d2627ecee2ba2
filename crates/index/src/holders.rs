//! Who holds the blocks of a chunk.

use smallvec::SmallVec;
use warmroute_routing::Tier;

use crate::chunk::Places;
use crate::seats::SeatId;

/// The incarnations of workers that hold a block of one chunk, ascending. Most chunks have one or two, a system prompt's
/// have all.
#[derive(Debug, Default)]
pub(crate) struct Holders(SmallVec<[Holding; 1]>);

/// What one incarnation holds of one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) seat: SeatId,
    /// The places in which it has a copy in each tier, whatever its names for them are.
    held: [Places; Tier::COUNT],
    /// What of them a walk from the root finds.
    pub(crate) reach: Reach,
}

/// How many blocks of a chunk, from its first on, a walk from the root finds in each tier or a faster one. Never
/// descending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach([u8; Tier::COUNT]);

// === impl Holders ===

impl Holders {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Holding> {
        self.0.iter()
    }

    fn position(&self, seat: SeatId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&seat, |holding| holding.seat)
    }

    pub(crate) fn get(&self, seat: SeatId) -> Option<&Holding> {
        self.0.get(self.position(seat).ok()?)
    }

    pub(crate) fn get_mut(&mut self, seat: SeatId) -> Option<&mut Holding> {
        let position = self.position(seat).ok()?;
        self.0.get_mut(position)
    }

    /// A holder, added if it was none.
    pub(crate) fn get_or_add(&mut self, seat: SeatId) -> Option<&mut Holding> {
        let position = self.position(seat).unwrap_or_else(|position| {
            self.0.insert(position, Holding { seat, held: [0; Tier::COUNT], reach: Reach::default() });
            position
        });
        self.0.get_mut(position)
    }

    /// Takes a holder out.
    pub(crate) fn remove(&mut self, seat: SeatId) -> Option<Holding> {
        let removed = self.0.remove(self.position(seat).ok()?);
        if self.0.is_empty() {
            // What a popular chunk took for its holders.
            self.0.shrink_to_fit();
        }
        Some(removed)
    }

    /// How many blocks, from the first on, are published for anybody.
    pub(crate) fn published(&self) -> u8 {
        self.0.iter().map(|holding| holding.reach.any()).max().unwrap_or(0)
    }

    /// The place after the last block that anybody holds, of those before the place `end`.
    pub(crate) fn end_held(&self, end: u8) -> u8 {
        let mut last = 0;
        for holding in &self.0 {
            last = last.max((Places::BITS - holding.any().leading_zeros()) as u8);
            if last >= end {
                break;
            }
        }
        last
    }
}

// === impl Holding ===

impl Holding {
    /// The places held in a tier.
    pub(crate) fn held(&self, tier: Tier) -> Places {
        let [gpu, cpu, disk, external] = self.held;
        match tier {
            Tier::Gpu => gpu,
            Tier::Cpu => cpu,
            Tier::Disk => disk,
            Tier::External => external,
        }
    }

    pub(crate) fn set_held(&mut self, tier: Tier, places: Places) {
        let [gpu, cpu, disk, external] = &mut self.held;
        let held = match tier {
            Tier::Gpu => gpu,
            Tier::Cpu => cpu,
            Tier::Disk => disk,
            Tier::External => external,
        };
        *held = places;
    }

    /// The places held in any tier.
    pub(crate) fn any(&self) -> Places {
        self.held.iter().fold(0, |any, held| any | held)
    }

    /// What a walk finds that comes to the chunk's first block, in the place `first`, in the tier `above`; none if it does
    /// not come there.
    pub(crate) fn reach_below(&self, first: u8, above: Option<Tier>) -> Reach {
        let Some(above) = above else { return Reach::default() };
        let mut within = 0;
        let mut reach = Reach::default();
        for ((depth, held), tier) in reach.0.iter_mut().zip(self.held).zip(Tier::ALL) {
            within |= held;
            if tier >= above {
                *depth = (within >> first).trailing_ones() as u8;
            }
        }
        reach
    }

    /// The tier in which a walk finds the block in a place of a chunk that begins in the place `first`.
    pub(crate) fn published_at(&self, first: u8, place: usize) -> Option<Tier> {
        self.reach.tier(place.checked_sub(usize::from(first))?)
    }
}

// === impl Reach ===

impl Reach {
    /// How many are found in any tier.
    pub(crate) fn any(self) -> u8 {
        let [.., any] = self.0;
        any
    }

    /// The tier in which the block after the first `before` is found.
    pub(crate) fn tier(self, before: usize) -> Option<Tier> {
        let tiers = self.0.into_iter().zip(Tier::ALL);
        tiers.filter(|(depth, _)| usize::from(*depth) > before).map(|(_, tier)| tier).next()
    }

    /// The blocks that are found otherwise than in `other`: a bit for each, the first block's the lowest.
    pub(crate) fn changed(self, other: Self) -> Places {
        let below = |depth: u8| ((1u32 << depth) - 1) as Places;
        self.0.into_iter().zip(other.0).fold(0, |changed, (a, b)| changed | below(a) ^ below(b))
    }
}
