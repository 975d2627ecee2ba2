//! Numbers of generations.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use warmroute_routing::page::Generation;

/// Bits below the time.
const RANDOM_BITS: u32 = 20;

/// Numbers that no other collector gives, before or after: the time in milliseconds, then 20 random bits. Within a process
/// they grow, whatever the clock does.
#[derive(Debug, Default)]
pub(super) struct Generations {
    last: u64,
}

// === impl Generations ===

impl Generations {
    pub(super) fn next(&mut self) -> Generation {
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        // The standard library's hash keys are random; what is hashed does not matter.
        let random = RandomState::new().hash_one(millis) & ((1 << RANDOM_BITS) - 1);
        self.last = (millis << RANDOM_BITS | random).max(self.last + 1);
        Generation(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_even_where_the_clock_does_not() {
        let mut generations = Generations { last: u64::MAX / 2 };
        let numbers = [0; 3].map(|_| generations.next().0);
        assert!(numbers.is_sorted_by(|a, b| a < b) && numbers[0] > u64::MAX / 2);
        assert!(Generations::default().next().0 >> RANDOM_BITS > 1_700_000_000_000);
    }
}
