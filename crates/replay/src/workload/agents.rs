//! Agents: a long description of tools that all runs share, many steps that each add a tool's result, and forks that go
//! on from the same text side by side.

use super::conversation::Conversation;
use super::{Piece, Sketch};
use crate::dice::Dice;

const RUNS: usize = 60;
const KINDS: usize = 3;
/// A step forks with this chance.
const FORKS: f64 = 0.15;

pub(super) fn requests(dice: &mut Dice) -> Vec<Sketch> {
    let tools: Vec<Piece> = (0..KINDS).map(|_| Piece::new(dice.next(), 6_000.0)).collect();
    let (mut requests, mut begin) = (Vec::new(), 0.0);
    for _ in 0..RUNS {
        begin += dice.exponential(4.0);
        let Some(tools) = tools.get(dice.below(KINDS)) else { continue };
        let mut task = Conversation::new(*tools);
        task.add(dice, 800.0);
        let mut threads = vec![(task, begin, 6 + dice.below(12))];
        while let Some((mut thread, mut at, steps)) = threads.pop() {
            for left in (0..steps).rev() {
                let output = dice.log_normal(120.0, 0.6).min(500.0);
                requests.push(thread.ask(dice, at, output));
                at += 3.0 + dice.exponential(4.0);
                if dice.share() < FORKS && left > 1 {
                    let forks = 1 + dice.below(3);
                    threads.extend((0..forks).map(|_| (thread.clone(), at, left / 2)));
                }
                let result = dice.log_normal(500.0, 1.0).min(6_000.0);
                thread.add(dice, result);
            }
        }
    }
    requests
}
