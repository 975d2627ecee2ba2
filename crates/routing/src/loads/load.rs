//! Sums and parts of loads. None overflows: a figure that is out of this world stays at its end.

use crate::choose::Load;

// === impl Load ===

impl Load {
    /// Whether nothing is in hand.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// This and another.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            prefill_tokens: self.prefill_tokens.saturating_add(other.prefill_tokens),
            blocks: self.blocks.saturating_add(other.blocks),
        }
    }

    /// This without another; never less than nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            prefill_tokens: self.prefill_tokens.saturating_sub(other.prefill_tokens),
            blocks: self.blocks.saturating_sub(other.blocks),
        }
    }

    /// Each figure times `numerator / denominator`, rounded up: a part of something is not nothing. Of a denominator of 0,
    /// all.
    #[must_use]
    pub fn part(self, numerator: u32, denominator: u32) -> Self {
        if numerator == denominator || denominator == 0 {
            return self;
        }
        let part = |figure: u64| {
            let (n, d) = (u128::from(numerator), u128::from(denominator));
            u64::try_from((u128::from(figure) * n).div_ceil(d)).unwrap_or(u64::MAX)
        };
        Self {
            requests: u32::try_from(part(self.requests.into())).unwrap_or(u32::MAX),
            prefill_tokens: part(self.prefill_tokens),
            blocks: part(self.blocks),
        }
    }
}
