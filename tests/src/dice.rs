//! Chance that is the same for the same seed.

use std::ops::Range;

/// A generator of numbers: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Dice(u64);

// === impl Dice ===

impl Dice {
    /// Dice that roll the same for the same `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Other dice, for purpose number `purpose` of the same run.
    #[must_use]
    pub fn fork(&self, purpose: u64) -> Self {
        Self(Self(self.0 ^ purpose.wrapping_mul(0xd134_2543_de82_ef95)).roll())
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `range`; its start where it is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start).max(1);
        range.start + self.roll() % width
    }

    /// One of `items`, if there are any.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.within(0..items.len() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn the_same_seed_rolls_the_same() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed).fork(1);
            [(); 20].map(|()| dice.within(3..9))
        };
        assert_eq!(rolls(1), rolls(1));
        assert_ne!(rolls(1), rolls(2));
        assert!(rolls(3).iter().all(|roll| (3..9).contains(roll)));
    }

    #[test]
    fn nothing_is_picked_of_nothing() {
        assert_eq!(Dice::new(1).pick::<u8>(&[]), None);
        assert_eq!(Dice::new(1).pick(&[7]), Some(&7));
    }
}
