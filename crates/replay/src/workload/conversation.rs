//! A text that grows turn by turn.

use super::{Piece, Sketch};
use crate::dice::Dice;

/// A conversation so far. An answer that comes back as part of a later prompt is a text of its own, as where a chat
/// template drops the reasoning or tokenizes anew: it is cached only once it has come back.
#[derive(Clone)]
pub(super) struct Conversation {
    pieces: Vec<Piece>,
}

// === impl Conversation ===

impl Conversation {
    pub(super) fn new(system: Piece) -> Self {
        Self { pieces: vec![system] }
    }

    /// Adds a text that nobody else has.
    pub(super) fn add(&mut self, dice: &mut Dice, tokens: f64) {
        self.pieces.push(Piece::new(dice.next(), tokens));
    }

    /// The request that asks for what comes next, at `at` seconds. The answer is part of the conversation from then on.
    pub(super) fn ask(&mut self, dice: &mut Dice, at: f64, output_tokens: f64) -> Sketch {
        let pieces = self.pieces.clone();
        self.add(dice, output_tokens);
        Sketch { at, pieces, output_tokens: output_tokens as u32 }
    }
}
