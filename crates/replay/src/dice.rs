//! Chance that repeats: a seed gives the same numbers on every machine.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    seed: u64,
    thrown: u64,
}

// === impl Dice ===

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, thrown: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.thrown += 1;
        xxh3_64_with_seed(&self.thrown.to_le_bytes(), self.seed)
    }

    /// A number below `bound`; 0 where that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.next().checked_rem(bound as u64).unwrap_or(0) as usize
    }

    /// A number from 0 up to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A waiting time of that mean, as between events that come independently.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }

    /// A length around `median`: two thirds lie within a factor of `e^sigma`.
    pub(crate) fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.share();
        median * (sigma * radius * angle.cos()).exp()
    }
}
