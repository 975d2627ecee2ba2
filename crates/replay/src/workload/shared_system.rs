//! Applications: a few long system prompts, used unequally often, each with short questions of its own.

use super::conversation::Conversation;
use super::{Piece, Sketch};
use crate::dice::Dice;

const REQUESTS: usize = 1_500;
const SYSTEM_PROMPTS: usize = 48;

pub(super) fn requests(dice: &mut Dice) -> Vec<Sketch> {
    let systems: Vec<Piece> = (0..SYSTEM_PROMPTS)
        .map(|_| Piece::new(dice.next(), dice.log_normal(3_000.0, 0.6).min(16_000.0)))
        .collect();
    let mut at = 0.0;
    let request = |_| {
        at += dice.exponential(0.1);
        // The square of an even chance favours the first, as a few applications have most of the traffic.
        let favoured = (dice.share() * dice.share() * SYSTEM_PROMPTS as f64) as usize;
        let mut conversation = Conversation::new(*systems.get(favoured)?);
        let words = dice.log_normal(300.0, 0.8).min(4_000.0);
        conversation.add(dice, words);
        let output = dice.log_normal(150.0, 0.6).min(600.0);
        Some(conversation.ask(dice, at, output))
    };
    (0..REQUESTS).filter_map(request).collect()
}
