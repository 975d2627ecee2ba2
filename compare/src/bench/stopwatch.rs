//! Time, as the wall and as the processor sees it.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What a piece of work took.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// How long it took.
    pub wall: Duration,
    /// What it took of the processors, in all threads of this process.
    pub cpu: Duration,
    /// How much was done.
    pub operations: u64,
}

/// Runs `work`, which says how much it has done.
pub fn time(work: impl FnOnce() -> u64) -> Sample {
    let (cpu, wall) = (cpu_now(), Instant::now());
    let operations = work();
    Sample { wall: wall.elapsed(), cpu: cpu_now() - cpu, operations }
}

fn cpu_now() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

// === impl Sample ===

impl Sample {
    /// Nanoseconds of the wall's time for one operation.
    pub fn wall_ns(&self) -> f64 {
        self.wall.as_nanos() as f64 / self.operations.max(1) as f64
    }

    /// Nanoseconds of the processors' time for one operation.
    pub fn cpu_ns(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.operations.max(1) as f64
    }
}
