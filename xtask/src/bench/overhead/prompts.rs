//! The prompts, the requests that carry them, and the index that knows some of them.

use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use base64::Engine as _;
use warmroute_e2e::scripted_feed::ScriptedIndex;
use warmroute_e2e::tokens;
use warmroute_routing::hash::{Namespace, sequence_hashes};

use super::load::Request;

/// The model that every request names.
pub(super) const MODEL: &str = "bench";

/// Tokens in a block.
pub(super) const BLOCK_SIZE: u32 = 16;

/// Worker endpoints.
pub(super) const WORKERS: usize = 64;

/// Different prompts of each length, each cached on another worker.
pub(super) const PROMPTS: usize = 4;

/// Blocks of prompts that nobody asks for, on each worker, so that the index has a size to search in.
const OTHER_BLOCKS: usize = 4096;

/// Stands for the first token of a prompt that nobody has.
const FIRST_OF_COLD: u32 = 100_000;

/// About nine blocks a page.
const PAGE_BITS: u8 = 15;

/// Where a request says what its prompt is, beside its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Nowhere else.
    Body,
    /// Block hashes in a header.
    Hashes,
    /// Token IDs in a header, as base64.
    Tokens,
}

/// The shape of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// OpenAI's completions, as vLLM takes them.
    Completions,
    /// SGLang's generate.
    Generate,
}

/// A prompt and who has it.
#[derive(Debug, Clone)]
pub(super) struct Prompt {
    pub(super) tokens: Vec<u32>,
    /// The worker that has it cached, where one has.
    pub(super) holder: Option<usize>,
}

/// The worker that has the prompts of this number cached.
pub(super) fn holder(number: usize) -> usize {
    (5 + 17 * number) % WORKERS
}

/// The prompts of a length that are cached, each whole on one worker.
pub(super) fn warm(length: usize) -> Vec<Prompt> {
    (0..PROMPTS).map(|i| Prompt { tokens: prompt(length, i), holder: Some(holder(i)) }).collect()
}

/// The prompts of a length that nobody has, nor has ever seen: their first token is another each time.
pub(super) fn cold(length: usize) -> Vec<Prompt> {
    let prompt = |i| {
        let tokens = std::iter::once(FIRST_OF_COLD).chain(prompt(length - 1, i)).collect();
        Prompt { tokens, holder: None }
    };
    (PROMPTS..2 * PROMPTS).map(prompt).collect()
}

fn prompt(length: usize, i: usize) -> Vec<u32> {
    tokens((length * 1000 + i) as u64, length)
}

/// The index in which the warm prompts of all `lengths` are cached, among others.
pub(super) fn index(lengths: &[usize], workers: &[SocketAddr]) -> Result<ScriptedIndex> {
    let mut index = ScriptedIndex::new(1, PAGE_BITS, workers);
    for (number, worker) in workers.iter().enumerate() {
        let others = tokens(u64::MAX - number as u64 * 1_000_003, OTHER_BLOCKS * BLOCK_SIZE as usize);
        index = index.with(*worker, &others);
    }
    for prompt in lengths.iter().flat_map(|length| warm(*length)) {
        let holder = prompt.holder.and_then(|number| workers.get(number)).context("no such worker")?;
        index = index.with(*holder, &prompt.tokens);
    }
    Ok(index)
}

// === impl Prompt ===

impl Prompt {
    /// The whole request.
    pub(super) fn request(&self, dialect: Dialect, carrier: Carrier) -> Request {
        let list = self.tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let (path, body) = match dialect {
            Dialect::Completions => {
                ("/v1/completions", format!(r#"{{"model":"{MODEL}","prompt":[{list}],"max_tokens":1}}"#))
            }
            Dialect::Generate => (
                "/generate",
                format!(
                    r#"{{"input_ids":[{list}],"sampling_params":{{"max_new_tokens":1}},"stream":false}}"#
                ),
            ),
        };
        let length = body.len();
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
        );
        match carrier {
            Carrier::Body => {}
            Carrier::Hashes => {
                let hashes = sequence_hashes(&self.tokens, BLOCK_SIZE, Namespace::default());
                request.push_str("x-warmroute-block-hashes: ");
                for (i, hash) in hashes.iter().enumerate() {
                    // Writing to a String cannot fail.
                    let _ = write!(request, "{}{:016x}", if i > 0 { "," } else { "" }, hash.0);
                }
                request.push_str("\r\n");
            }
            Carrier::Tokens => {
                let bytes: Vec<u8> = self.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
                request.push_str("x-warmroute-tokens-base64: ");
                base64::engine::general_purpose::STANDARD.encode_string(bytes, &mut request);
                request.push_str("\r\n");
            }
        }
        request.push_str("\r\n");
        let body_at = request.len();
        request.push_str(&body);
        let stamp = self.holder.is_none().then(|| body.find('[')).flatten().map(|list| body_at + list + 1);
        Request { bytes: request.into_bytes(), holder: self.holder, stamp }
    }
}
