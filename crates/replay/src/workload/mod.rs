//! What is asked, and when.

mod agents;
mod burst;
mod conversation;
mod hot_prefix;
pub(crate) mod mooncake;
mod multi_turn;
mod no_reuse;
mod shared_system;

use std::time::Duration;

use warmroute_routing::choose::Prompt;
use warmroute_routing::hash::{Namespace, SequenceHash, sequence_hashes};

use crate::dice::Dice;

/// Requests in the order in which they come, and what sort of cache they are meant for.
pub(crate) struct Workload {
    /// Its name in reports.
    pub(crate) name: String,
    /// Tokens in a block.
    pub(crate) block_size: u32,
    /// Ascending by time.
    pub(crate) requests: Vec<Request>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Request {
    /// Since the start, at the workload's own rate.
    pub(crate) at: Duration,
    /// The tokens in the answer; at least one.
    pub(crate) output_tokens: u32,
    /// What the filter is asked about.
    pub(crate) prompt: Prompt,
    /// The hashes of the prompt's full blocks.
    pub(crate) hashes: Vec<SequenceHash>,
    pieces: Vec<Piece>,
}

/// A part of a prompt. Equal pieces have equal tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Names the text.
    pub(crate) content: u64,
    /// Its length.
    pub(crate) tokens: u32,
}

/// The built-in workloads: their names, and what makes them of a seed.
type Build = fn(&mut Dice) -> Vec<Sketch>;
const BUILT_IN: [(&str, Build); 6] = [
    ("multi_turn", multi_turn::requests),
    ("shared_system", shared_system::requests),
    ("agents", agents::requests),
    ("burst", burst::requests),
    ("hot_prefix", hot_prefix::requests),
    ("no_reuse", no_reuse::requests),
];

/// Tokens in a block of the built-in workloads.
pub(crate) const BLOCK_SIZE: u32 = 128;

/// A request before it is hashed.
pub(crate) struct Sketch {
    /// In seconds.
    at: f64,
    pieces: Vec<Piece>,
    output_tokens: u32,
}

/// The names of the built-in workloads.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// A built-in workload; none of another name.
pub(crate) fn built_in(name: &str, seed: u64) -> Option<Workload> {
    let (name, build) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
    Some(Workload::new(name, BLOCK_SIZE, build(&mut Dice::new(seed))))
}

// === impl Workload ===

impl Workload {
    fn new(name: &str, block_size: u32, mut sketches: Vec<Sketch>) -> Self {
        sketches.sort_by(|a, b| a.at.total_cmp(&b.at));
        let requests = sketches.into_iter().map(|sketch| Request::new(sketch, block_size)).collect();
        Self { name: name.to_owned(), block_size, requests }
    }
}

// === impl Request ===

impl Request {
    fn new(sketch: Sketch, block_size: u32) -> Self {
        let tokens: Vec<u32> = sketch.pieces.iter().flat_map(|piece| piece.tokens()).collect();
        let hashes = sequence_hashes(&tokens, block_size, Namespace::default());
        let blocks = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
        Self {
            at: Duration::from_secs_f64(sketch.at.max(0.0)),
            output_tokens: sketch.output_tokens.max(1),
            prompt: Prompt { blocks, tokens: tokens.len() as u64, block_size },
            hashes,
            pieces: sketch.pieces,
        }
    }

    /// The prompt.
    pub(crate) fn tokens(&self) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(usize::try_from(self.prompt.tokens).unwrap_or(0));
        self.pieces.iter().for_each(|piece| tokens.extend(piece.tokens()));
        tokens
    }
}

// === impl Piece ===

impl Piece {
    fn new(content: u64, tokens: f64) -> Self {
        Self { content, tokens: (tokens as u32).max(1) }
    }

    fn tokens(self) -> impl Iterator<Item = u32> {
        let first = self.content.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..u64::from(self.tokens))
            .map(move |i| (first.wrapping_add(i.wrapping_mul(0xd134_2543_de82_ef95)) >> 32) as u32)
    }
}
