//! One system prompt under every request: whoever follows the longest prefix alone sends everything to one worker.

use super::conversation::Conversation;
use super::{Piece, Sketch};
use crate::dice::Dice;

const REQUESTS: usize = 1_500;

pub(super) fn requests(dice: &mut Dice) -> Vec<Sketch> {
    let system = Piece::new(dice.next(), 4_000.0);
    let mut at = 0.0;
    let request = |_| {
        at += dice.exponential(0.1);
        let mut conversation = Conversation::new(system);
        let words = dice.log_normal(500.0, 0.8).min(4_000.0);
        conversation.add(dice, words);
        let output = dice.log_normal(150.0, 0.6).min(600.0);
        conversation.ask(dice, at, output)
    };
    (0..REQUESTS).map(request).collect()
}
