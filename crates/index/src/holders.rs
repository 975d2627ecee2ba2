//! Who holds a block.

use smallvec::SmallVec;
use warmroute_routing::Tier;

use crate::copies::{Copies, Taken};
use crate::seats::SeatId;

/// The incarnations of workers that hold one block, ascending. Most blocks have one or two holders, a system prompt's
/// have all.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    holdings: SmallVec<[Holding; 2]>,
    published: u32,
}

/// What one incarnation holds of one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) seat: SeatId,
    /// How many names the worker has for the block in each tier: one, but for engines that name it anew in each
    /// group. How many copies a name stands for is the name's affair. Never sticks: see [`Holding::is_full`].
    names: Copies,
    /// The tier in which a walk from the root finds the block; none if the walk ends before.
    pub(crate) published: Option<Tier>,
}

/// How publishing a block changed with its holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// It is published for the first of its holders.
    Appeared,
    /// It was published for the last of them.
    Disappeared,
    /// Neither.
    Stayed,
}

// === impl Holders ===

impl Holders {
    pub(crate) fn is_empty(&self) -> bool {
        self.holdings.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Holding> {
        self.holdings.iter()
    }

    pub(crate) fn is_published(&self) -> bool {
        self.published > 0
    }

    fn position(&self, seat: SeatId) -> Result<usize, usize> {
        self.holdings.binary_search_by_key(&seat, |holding| holding.seat)
    }

    pub(crate) fn get(&self, seat: SeatId) -> Option<&Holding> {
        self.holdings.get(self.position(seat).ok()?)
    }

    pub(crate) fn get_mut(&mut self, seat: SeatId) -> Option<&mut Holding> {
        let position = self.position(seat).ok()?;
        self.holdings.get_mut(position)
    }

    /// Adds a holder. False if it is one.
    pub(crate) fn insert(&mut self, seat: SeatId) -> bool {
        match self.position(seat) {
            Ok(_) => false,
            Err(position) => {
                self.holdings.insert(position, Holding { seat, names: Copies::default(), published: None });
                true
            }
        }
    }

    /// Takes a holder out. It must not be published any more.
    pub(crate) fn remove(&mut self, seat: SeatId) {
        if let Ok(position) = self.position(seat) {
            self.holdings.remove(position);
        }
    }

    /// Publishes the block for a holder, or takes it back. None if nothing changes.
    pub(crate) fn publish(&mut self, seat: SeatId, tier: Option<Tier>) -> Option<Shift> {
        let holding = self.get_mut(seat)?;
        let before = std::mem::replace(&mut holding.published, tier);
        if before == tier {
            return None;
        }
        match (before.is_some(), tier.is_some()) {
            (false, true) => self.published += 1,
            (true, false) => self.published -= 1,
            _ => return Some(Shift::Stayed),
        }
        Some(match (tier, self.published) {
            (Some(_), 1) => Shift::Appeared,
            (None, 0) => Shift::Disappeared,
            _ => Shift::Stayed,
        })
    }
}

// === impl Holding ===

impl Holding {
    /// Whether the block has as many names in this tier as can be counted. One name more would never be forgotten.
    pub(crate) fn is_full(&self, tier: Tier) -> bool {
        self.names.is_full(tier)
    }

    /// A name has its first copy in this tier. True if it is the first name.
    pub(crate) fn add_name(&mut self, tier: Tier) -> bool {
        self.names.add(tier)
    }

    /// A name has lost its last copy in this tier. True if it was the last name.
    pub(crate) fn drop_name(&mut self, tier: Tier) -> bool {
        self.names.take(tier, None) == Taken::Last
    }

    pub(crate) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// The tier in which a walk finds the block if it came in the tier `above`.
    pub(crate) fn tier_below(&self, above: Tier) -> Option<Tier> {
        Some(self.names.tiers().next()?.max(above))
    }
}
