//! Bursts: now and then many ask at once about one text that nobody has asked about before, over a steady background.

use super::conversation::Conversation;
use super::{Piece, Sketch};
use crate::dice::Dice;

const REQUESTS: usize = 1_000;
const BURSTS: usize = 6;
const BURST: usize = 64;

pub(super) fn requests(dice: &mut Dice) -> Vec<Sketch> {
    let mut requests = Vec::new();
    let mut at = 0.0;
    for _ in 0..REQUESTS {
        at += dice.exponential(0.2);
        let tokens = dice.log_normal(1_000.0, 0.8).min(8_000.0);
        requests.push(one(dice, Piece::new(at.to_bits(), tokens), at));
    }
    for burst in 1..=BURSTS {
        let (start, text) = (at * burst as f64 / (BURSTS + 1) as f64, Piece::new(dice.next(), 4_000.0));
        requests.extend((0..BURST).map(|_| {
            let moment = start + 0.2 * dice.share();
            one(dice, text, moment)
        }));
    }
    requests
}

fn one(dice: &mut Dice, text: Piece, at: f64) -> Sketch {
    let mut conversation = Conversation::new(text);
    conversation.add(dice, 64.0);
    let output = dice.log_normal(150.0, 0.6).min(600.0);
    conversation.ask(dice, at, output)
}
