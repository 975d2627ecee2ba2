//! Chat: conversations of a few turns under a short system prompt that all share.

use super::conversation::Conversation;
use super::{Piece, Sketch};
use crate::dice::Dice;

const CONVERSATIONS: usize = 300;

pub(super) fn requests(dice: &mut Dice) -> Vec<Sketch> {
    let system = Piece::new(dice.next(), 400.0);
    let (mut requests, mut begin) = (Vec::new(), 0.0);
    for _ in 0..CONVERSATIONS {
        begin += dice.exponential(1.0);
        let (mut conversation, mut at) = (Conversation::new(system), begin);
        for _ in 0..1 + dice.below(9) {
            let words = dice.log_normal(400.0, 1.0).min(8_000.0);
            conversation.add(dice, words);
            let output = dice.log_normal(250.0, 0.6).min(1_000.0);
            requests.push(conversation.ask(dice, at, output));
            at += 5.0 + dice.exponential(25.0);
        }
    }
    requests
}
