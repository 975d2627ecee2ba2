//! Why nothing of a worker is indexed.

use std::fmt;

use warmroute_wire::Unsupported;

/// Why nothing of a worker is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its release does not tell what is cached.
    Unsupported(Unsupported),
    /// All of its blocks so far are of another size than the pool's.
    BlockSize {
        /// The pool's.
        expected: u32,
        /// The worker's.
        actual: u32,
    },
}

// === impl Refusal ===

impl Refusal {
    /// Its names in metrics, each of them.
    pub const REASONS: [&'static str; 2] = ["unsupported", "block_size"];

    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unsupported(unsupported) => unsupported.as_str(),
            Self::BlockSize { .. } => "block_size",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(unsupported) => unsupported.fmt(f),
            Self::BlockSize { expected, actual } => {
                write!(f, "its blocks have {actual} tokens, `block_size` says {expected}")
            }
        }
    }
}
