//! Resident memory over time, and whether it is flat.
//!
//! Flat: the mean of the last third is at most 5% above the mean of the second third. The first third is for filling
//! caches. A fall is no leak.
//!
//! Envoy's thirds are those of the run. A collector that is started again begins small, so a mean over several lives
//! would tell when it was killed and not whether it grows: its thirds are those of its longest life, from the tenth
//! second on (by then the engines' caches are replayed). A series of less than half a minute is not judged.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::shared::Collector;

/// What the last third may have more than the second.
const GROWTH: f64 = 0.05;

/// A shorter series tells nothing.
const SHORTEST: Duration = Duration::from_secs(30);

/// Until a collector has its index again.
const FILLING: Duration = Duration::from_secs(10);

/// Measurements of one process, oldest first.
#[derive(Default)]
pub(crate) struct Series(Vec<(Instant, u64)>);

/// The collector's lives.
#[derive(Default)]
pub(crate) struct Lives(Vec<(Collector, Series)>);

/// What a series comes to.
pub(crate) struct Thirds {
    /// From the first measurement to the last.
    pub(crate) length: Duration,
    /// The mean of the second third, in MiB.
    pub(crate) second_mib: f64,
    /// The mean of the last third, in MiB.
    pub(crate) last_mib: f64,
}

/// The resident memory of a process in KiB, if there is such a process.
pub(crate) fn resident_kib(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

// === impl Series ===

impl Series {
    pub(crate) fn add(&mut self, at: Instant, kib: Option<u64>) {
        self.0.extend(kib.map(|kib| (at, kib)));
    }

    /// The last measurement, in MiB.
    pub(crate) fn last_mib(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, kib)| *kib as f64 / 1024.0)
    }

    fn length(&self) -> Duration {
        self.0.first().zip(self.0.last()).map_or(Duration::ZERO, |(first, last)| last.0 - first.0)
    }

    /// Unless the series is too short to be judged.
    pub(crate) fn thirds(&self) -> Option<Thirds> {
        let length = self.length();
        let start = self.0.first().map(|(at, _)| *at)?;
        if length < SHORTEST {
            return None;
        }
        let third = |number: u32| {
            let (from, to) = (start + length * (number - 1) / 3, start + length * number / 3);
            let within = self.0.iter().filter(|(at, _)| (from..=to).contains(at)).map(|(_, kib)| *kib as f64);
            let (sum, count) = within.fold((0.0, 0.0), |(sum, count), kib| (sum + kib, count + 1.0));
            (count > 0.0).then(|| sum / count / 1024.0)
        };
        Some(Thirds { length, second_mib: third(2)?, last_mib: third(3)? })
    }
}

// === impl Lives ===

impl Lives {
    pub(crate) fn add(&mut self, at: Instant, life: Option<Collector>) {
        let Some(life) = life else { return };
        if at.saturating_duration_since(life.since) < FILLING {
            return;
        }
        if self.0.last().is_none_or(|(last, _)| *last != life) {
            self.0.push((life, Series::default()));
        }
        if let Some((_, series)) = self.0.last_mut() {
            series.add(at, resident_kib(life.id));
        }
    }

    /// The last measurement, in MiB.
    pub(crate) fn last_mib(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, series)| series.last_mib())
    }

    /// Of the longest life.
    pub(crate) fn thirds(&self) -> Option<Thirds> {
        self.0.iter().map(|(_, series)| series).max_by_key(|series| series.length())?.thirds()
    }
}

// === impl Thirds ===

impl Thirds {
    /// What the last third has more than the second, as a share of the second.
    pub(crate) fn growth(&self) -> f64 {
        self.last_mib / self.second_mib - 1.0
    }

    pub(crate) fn is_flat(&self) -> bool {
        self.growth() <= GROWTH
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "seconds": self.length.as_secs(),
            "second_third_mib": self.second_mib,
            "last_third_mib": self.last_mib,
            "growth": self.growth(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Series, resident_kib};

    fn series(kib: impl Fn(u64) -> u64) -> Series {
        let start = Instant::now();
        Series((0..90).map(|second| (start + Duration::from_secs(second), kib(second))).collect())
    }

    #[test]
    fn growth_is_seen_and_a_warm_start_and_a_fall_are_none() {
        assert!(!series(|second| 1000 + 10 * second).thirds().unwrap().is_flat());
        assert!(series(|second| if second < 28 { second } else { 1000 }).thirds().unwrap().is_flat());
        assert!(series(|second| 2000 - 10 * second).thirds().unwrap().is_flat());
        assert!(Series::default().thirds().is_none());
    }

    #[test]
    fn our_own_memory_can_be_read() {
        assert!(resident_kib(std::process::id()).unwrap() > 100);
    }
}
