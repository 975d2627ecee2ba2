//! The scanner against serde_json, against every cut, and against hostile bodies.

mod differential;
mod hostile;
mod pieces;

use super::{BodyScanner, Name, PromptKind, TokenSink};
use crate::prompt::PromptError;

#[derive(Default)]
struct Tokens(Vec<u32>);

impl TokenSink for Tokens {
    fn token(&mut self, id: u32) {
        self.0.push(id);
    }
}

/// What a complete body holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BodySummary {
    /// The prompt.
    prompt: PromptKind,
    /// `model`: the base model or an adapter.
    model: Name,
    /// `cache_salt`.
    cache_salt: Name,
    /// `lora_path`: SGLang's name of an adapter.
    lora_path: Name,
    /// `extra_key`: SGLang's own part of the namespace.
    extra_key: Name,
}

/// What came of a whole body.
type Outcome = Result<(BodySummary, Vec<u32>), PromptError>;

fn scan_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut tokens = Tokens::default();
    let mut scanner = BodyScanner::new();
    for piece in pieces {
        scanner.feed(piece, &mut tokens);
    }
    let prompt = scanner.finish()?;
    let summary = BodySummary {
        prompt,
        model: scanner.model().clone(),
        cache_salt: scanner.cache_salt().clone(),
        lora_path: scanner.lora_path().clone(),
        extra_key: scanner.extra_key().clone(),
    };
    Ok((summary, tokens.0))
}

fn scan(body: &[u8]) -> Outcome {
    scan_pieces([body])
}
