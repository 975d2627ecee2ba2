//! Counting by tier.

use warmroute_routing::Tier;

/// A count for each tier.
///
/// Counts saturate and then stick: at [`u16::MAX`] nobody knows any more how many there are, so the last one cannot be
/// told either, and only a reset ends it, or whoever knows the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copies([u16; Tier::COUNT]);

/// What became of a count when one was to be taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There was none.
    Nothing,
    /// Some are left in this tier.
    One,
    /// It was the last one in this tier.
    Last,
}

// === impl Copies ===

impl Copies {
    /// One in `tier`.
    pub(crate) fn one(tier: Tier) -> Self {
        let mut copies = Self::default();
        copies.add(tier);
        copies
    }

    /// Adds one. True if it is the first in its tier.
    pub(crate) fn add(&mut self, tier: Tier) -> bool {
        let count = self.count_mut(tier);
        let first = *count == 0;
        *count = count.saturating_add(1);
        first
    }

    /// Takes one, after which there are as many as `left` says, where it does.
    pub(crate) fn take(&mut self, tier: Tier, left: Option<u32>) -> Taken {
        let count = self.count_mut(tier);
        if *count == 0 {
            return Taken::Nothing;
        }
        *count = match (left, *count) {
            (Some(left), _) => u16::try_from(left).unwrap_or(u16::MAX),
            (None, u16::MAX) => u16::MAX,
            (None, counted) => counted - 1,
        };
        if *count == 0 { Taken::Last } else { Taken::One }
    }

    /// Whether there is one in this tier.
    pub(crate) fn has(&self, tier: Tier) -> bool {
        self.count(tier) > 0
    }

    /// Whether there is none in any tier.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; Tier::COUNT]
    }

    /// The tiers in which there is one, fastest first.
    pub(crate) fn tiers(self) -> impl Iterator<Item = Tier> {
        Tier::ALL.into_iter().filter(move |tier| self.has(*tier))
    }

    /// The count of each tier, as [`Copies::of_counts`] takes them.
    pub(crate) fn counts(self) -> [u16; Tier::COUNT] {
        self.0
    }

    /// Counts that were told by [`Copies::counts`].
    pub(crate) fn of_counts(counts: [u16; Tier::COUNT]) -> Self {
        Self(counts)
    }

    fn count(&self, tier: Tier) -> u16 {
        let [gpu, cpu, disk, external] = self.0;
        match tier {
            Tier::Gpu => gpu,
            Tier::Cpu => cpu,
            Tier::Disk => disk,
            Tier::External => external,
        }
    }

    fn count_mut(&mut self, tier: Tier) -> &mut u16 {
        let [gpu, cpu, disk, external] = &mut self.0;
        match tier {
            Tier::Gpu => gpu,
            Tier::Cpu => cpu,
            Tier::Disk => disk,
            Tier::External => external,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_copy_of_a_tier_is_told() {
        let mut copies = Copies::one(Tier::Cpu);
        assert!(!copies.add(Tier::Cpu));
        assert!(copies.add(Tier::Gpu));
        assert_eq!(copies.tiers().collect::<Vec<_>>(), [Tier::Gpu, Tier::Cpu]);
        assert_eq!(copies.take(Tier::Cpu, None), Taken::One);
        assert_eq!(copies.take(Tier::Cpu, None), Taken::Last);
        assert_eq!(copies.take(Tier::Cpu, None), Taken::Nothing);
        assert_eq!(copies.take(Tier::Gpu, None), Taken::Last);
        assert!(copies.is_empty());
    }

    #[test]
    fn who_knows_how_many_are_left_is_believed() {
        let mut copies = Copies::one(Tier::Gpu);
        copies.add(Tier::Cpu);
        assert_eq!(copies.take(Tier::Gpu, Some(2)), Taken::One);
        assert_eq!(copies.take(Tier::Gpu, None), Taken::One);
        assert_eq!(copies.take(Tier::Gpu, None), Taken::Last);
        // What is not there does not come by being taken.
        assert_eq!(copies.take(Tier::Gpu, Some(3)), Taken::Nothing);
        for _ in 0..70_000 {
            copies.add(Tier::Gpu);
        }
        assert_eq!(copies.take(Tier::Gpu, Some(100_000)), Taken::One);
        assert_eq!(copies.take(Tier::Gpu, Some(0)), Taken::Last);
        assert_eq!(copies.tiers().collect::<Vec<_>>(), [Tier::Cpu]);
    }

    #[test]
    fn a_full_count_sticks() {
        let mut copies = Copies::default();
        for _ in 0..70_000 {
            copies.add(Tier::Disk);
        }
        for _ in 0..70_000 {
            assert_eq!(copies.take(Tier::Disk, None), Taken::One);
        }
    }
}
