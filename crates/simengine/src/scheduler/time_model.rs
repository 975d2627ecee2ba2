//! How long things take.

use std::time::Duration;

/// The engine's speed.
#[derive(Clone, Copy, Debug)]
pub struct TimeModel {
    /// From the start of a prefill to its first token, apart from the prefill itself. It overlaps with others' work.
    pub base: Duration,
    /// The prefill device's time for each token that is not cached. Serial: one prompt at a time.
    pub prefill_per_token: Duration,
    /// From one output token to the next.
    pub decode_per_token: Duration,
}

// === impl TimeModel ===

impl TimeModel {
    /// The prefill device's time for `uncached_tokens` tokens.
    pub fn prefill(&self, uncached_tokens: usize) -> Duration {
        self.prefill_per_token.saturating_mul(u32::try_from(uncached_tokens).unwrap_or(u32::MAX))
    }
}
