//! The scanner against serde_json, against every cut, and against hostile bodies.

mod differential;
mod hostile;
mod pieces;

use super::{BodyScanner, BodySummary, TokenSink};
use crate::prompt::PromptError;

#[derive(Default)]
struct Tokens(Vec<u32>);

impl TokenSink for Tokens {
    fn token(&mut self, id: u32) {
        self.0.push(id);
    }
}

/// What came of a whole body.
type Outcome = Result<(BodySummary, Vec<u32>), PromptError>;

fn scan_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut tokens = Tokens::default();
    let mut scanner = BodyScanner::new();
    for piece in pieces {
        scanner.feed(piece, &mut tokens);
    }
    Ok((scanner.finish()?, tokens.0))
}

fn scan(body: &[u8]) -> Outcome {
    scan_pieces([body])
}
