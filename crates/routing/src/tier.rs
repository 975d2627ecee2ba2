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

/// A set of [`Tier`]s, as a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TierSet(u8);

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

// === impl TierSet ===

impl TierSet {
    /// The set with no tier.
    pub const EMPTY: TierSet = TierSet(0);

    /// Adds a tier.
    pub fn insert(&mut self, tier: Tier) {
        self.0 |= 1 << tier as u8;
    }

    /// Takes a tier out.
    pub fn remove(&mut self, tier: Tier) {
        self.0 &= !(1 << tier as u8);
    }

    /// Whether no tier is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The fastest tier of the set.
    pub fn fastest(self) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| self.0 & (1 << *tier as u8) != 0)
    }
}
