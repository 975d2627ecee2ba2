//! What a decided request is booked for, and how the books are corrected while its body streams.

use std::net::SocketAddr;

use warmroute_routing::hash::SequenceHash;
use warmroute_routing::page::{Generation, Slot};

use super::body::BodyReader;
use super::usage::UsageReader;
use crate::host::RequestHost;
use crate::ledger::Work;
use crate::trust::Prediction;

/// What to book once it is known who serves.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Whom the filter named first.
    pub(super) named: Option<SocketAddr>,
    /// What the request asks of the one who was named.
    pub(super) work: Work,
    /// The body whose end was not waited for.
    pub(super) rest: Option<Box<Rest>>,
}

/// An answer that is read for what the engine says that it had cached.
#[derive(Debug)]
pub(super) struct Comparison {
    /// The worker that was named.
    pub(super) worker: SocketAddr,
    /// What it was predicted to have.
    pub(super) prediction: Prediction,
    /// Tokens in a block.
    pub(super) block_size: u32,
    /// What was read of the answer.
    pub(super) usage: UsageReader,
}

/// A body that streams, whose prompt was decided before its end.
#[derive(Debug)]
pub(super) struct Rest {
    body: BodyReader,
    sent: Sent,
    /// Bytes that were read for the decision, and that have come since.
    bytes_read: u64,
    bytes: u64,
    /// Tokens in the bytes that were read.
    tokens_read: u64,
    /// Tokens that the one who was named has cached.
    cached_tokens: u64,
}

/// Where a prompt was sent whose end was not there yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The index that was looked into.
    pub(super) generation: Generation,
    /// The worker.
    pub(super) slot: Slot,
    /// Blocks that the index had for it.
    pub(super) base: u32,
}

/// What is known of a prompt once its end is there.
pub(super) struct Settled<'a> {
    /// Its blocks, if it was read to its end.
    pub(super) hashes: Option<&'a [SequenceHash]>,
    /// Where it was sent.
    pub(super) sent: Sent,
    /// Tokens that the one who was named has to compute.
    pub(super) uncached_tokens: u64,
}

/// Of each part of an answer so much is read at most, its end: what is looked for stands there.
const MOST_READ: usize = 16 * 1024;

// === impl Comparison ===

impl Comparison {
    /// `len` bytes more of the answer have come.
    pub(super) fn read(&mut self, host: &impl RequestHost, len: usize) {
        let start = len.saturating_sub(MOST_READ);
        if start > 0 {
            self.usage.skip();
        }
        if let Some(bytes) = host.response_body(start, len - start) {
            self.usage.feed(&bytes);
        }
    }

    /// How many blocks the engine says that it had cached.
    pub(super) fn actual_blocks(&self) -> Option<u64> {
        self.usage.cached_tokens()?.checked_div(u64::from(self.block_size))
    }
}

// === impl Rest ===

impl Rest {
    /// The rest of a body. `uncached_tokens`: what the one who was named was expected to have to compute.
    pub(super) fn new(body: BodyReader, sent: Sent, uncached_tokens: u64) -> Self {
        let (bytes_read, tokens_read) = (body.bytes_read(), body.tokens_read());
        let cached_tokens = body.expected_tokens().saturating_sub(uncached_tokens);
        Self { body, sent, bytes_read, bytes: bytes_read, tokens_read, cached_tokens }
    }

    /// More of the body has come, `len` bytes. Whether there is no more to learn.
    fn stream(&mut self, host: &impl RequestHost, len: usize, end: bool) -> bool {
        self.bytes = self.bytes.saturating_add(len as u64);
        self.body.follow(host, len) || end
    }

    /// Tokens of the whole prompt: counted, or as many as there are if the part that was read is like the whole.
    fn tokens(&self) -> u64 {
        if self.body.prompt_is_open() {
            self.tokens_read.saturating_mul(self.bytes) / self.bytes_read.max(1)
        } else {
            self.body.tokens_read()
        }
    }
}

// === impl Served ===

impl Served {
    /// More of the body has come. Says what is known of the prompt, once that is all that will be.
    pub(super) fn stream(
        &mut self,
        host: &impl RequestHost,
        len: usize,
        end: bool,
        settled: impl FnOnce(Settled<'_>),
    ) {
        let Some(mut rest) = self.rest.take() else { return };
        if !rest.stream(host, len, end) {
            self.rest = Some(rest);
            return;
        }
        self.work.prefill_tokens = rest.tokens().saturating_sub(rest.cached_tokens);
        settled(Settled {
            hashes: rest.body.whole_prompt(),
            sent: rest.sent,
            uncached_tokens: self.work.prefill_tokens,
        });
    }
}
