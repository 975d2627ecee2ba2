//! Where a worker keeps a cached block.

/// A storage tier of a worker's KV cache, from fastest to slowest. The order is the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Tier {
    /// The accelerator's own memory: a hit costs nothing.
    Gpu = 0,
    /// The host's memory: a hit costs a copy.
    Cpu = 1,
    /// A local disk or file system.
    Disk = 2,
    /// A store outside the worker, shared or remote.
    External = 3,
}

// === impl Tier ===

impl Tier {
    /// How many tiers there are.
    pub const COUNT: usize = 4;
    /// Every tier, fastest first.
    pub const ALL: [Tier; Self::COUNT] = [Tier::Gpu, Tier::Cpu, Tier::Disk, Tier::External];

    /// The tier of a two-bit number; the higher bits are ignored.
    pub fn from_bits(bits: u16) -> Self {
        match bits & 3 {
            0 => Tier::Gpu,
            1 => Tier::Cpu,
            2 => Tier::Disk,
            _ => Tier::External,
        }
    }

    /// The tier's name in metrics and reports: `gpu`, `cpu`, `disk`, `external`.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Gpu => "gpu",
            Tier::Cpu => "cpu",
            Tier::Disk => "disk",
            Tier::External => "external",
        }
    }
}
