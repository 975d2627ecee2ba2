//! What a decided request is booked for, and how the books are corrected while its body streams.

use std::net::SocketAddr;

use crate::ledger::Work;

/// What to book once it is known who serves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    /// Whom the filter named first.
    pub(super) named: Option<SocketAddr>,
    /// What the request asks of the one who was named.
    pub(super) work: Work,
    /// The body whose end was not waited for.
    pub(super) rest: Option<Rest>,
}

/// A body that streams, whose prompt's length was only guessed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    /// Bytes that were read for the decision, and that have come since.
    pub(super) bytes_read: u64,
    pub(super) bytes: u64,
    /// Tokens in the bytes that were read.
    pub(super) tokens_read: u64,
    /// Tokens that the one who was named has cached.
    pub(super) cached_tokens: u64,
}

// === impl Served ===

impl Served {
    /// More of the body has come. Says how many tokens have to be computed, once that can be told better.
    pub(super) fn stream(&mut self, len: usize, end: bool) -> Option<u64> {
        let rest = self.rest.as_mut()?;
        rest.bytes = rest.bytes.saturating_add(len as u64);
        if !end {
            return None;
        }
        let tokens = rest.tokens_read.saturating_mul(rest.bytes) / rest.bytes_read.max(1);
        self.work.prefill_tokens = tokens.saturating_sub(rest.cached_tokens);
        self.rest = None;
        Some(self.work.prefill_tokens)
    }
}
