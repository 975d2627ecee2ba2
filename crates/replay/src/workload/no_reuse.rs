//! Nothing in common: every prompt is new.

use super::conversation::Conversation;
use super::{Piece, Sketch};
use crate::dice::Dice;

const REQUESTS: usize = 1_500;

pub(super) fn requests(dice: &mut Dice) -> Vec<Sketch> {
    let mut at = 0.0;
    let request = |_| {
        at += dice.exponential(0.2);
        let tokens = dice.log_normal(1_500.0, 0.9).min(16_000.0);
        let mut conversation = Conversation::new(Piece::new(dice.next(), tokens));
        let output = dice.log_normal(200.0, 0.6).min(800.0);
        conversation.ask(dice, at, output)
    };
    (0..REQUESTS).map(request).collect()
}
