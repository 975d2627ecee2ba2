//! What is asked: conversations of several turns under a few shared system prompts, the same in every run.

use warmroute_e2e::tokens;

const SYSTEM_PROMPTS: u64 = 6;
const CONVERSATIONS: u64 = 48;
/// Every other conversation ends one turn earlier.
const MOST_TURNS: usize = 6;

/// The conversations, and in which order their turns come.
pub(crate) struct Plan {
    /// The conversations.
    pub(crate) conversations: Vec<Conversation>,
    /// One entry a request: whose next turn it is.
    pub(crate) order: Vec<usize>,
}

/// What one user says.
pub(crate) struct Conversation {
    /// Token IDs before the first turn, shared with other conversations.
    pub(crate) system: Vec<u32>,
    /// The user's token IDs, turn by turn.
    pub(crate) turns: Vec<Vec<u32>>,
}

// === impl Plan ===

impl Plan {
    pub(crate) fn new() -> Self {
        let conversations: Vec<_> = (0..CONVERSATIONS).map(Conversation::new).collect();
        let order = (0..MOST_TURNS).flat_map(|turn| round(&conversations, turn)).collect();
        Self { conversations, order }
    }
}

/// The conversations that have a turn of that number, shuffled: whoever spoke last comes up anywhere in the next round.
fn round(conversations: &[Conversation], turn: usize) -> Vec<usize> {
    let mut round: Vec<usize> = conversations
        .iter()
        .enumerate()
        .filter(|(_, conversation)| turn < conversation.turns.len())
        .map(|(number, _)| number)
        .collect();
    round.sort_by_cached_key(|number| tokens(draw(turn as u64, *number as u64, 3), 1));
    round
}

// === impl Conversation ===

impl Conversation {
    fn new(number: u64) -> Self {
        let system = number % SYSTEM_PROMPTS;
        // Lengths that are no multiple of a block, around 1,000 tokens and around 120.
        let system_tokens = 950 + length(draw(system, 0, 1), 100);
        let turns = MOST_TURNS - usize::from(number % 2 == 1);
        Self {
            system: tokens(draw(system, 0, 2), system_tokens),
            turns: (0..turns)
                .map(|turn| {
                    let seed = draw(number, turn as u64, 4);
                    tokens(seed, 40 + length(seed, 160))
                })
                .collect(),
        }
    }
}

/// A length below `bound`, drawn by `seed`.
fn length(seed: u64, bound: u32) -> usize {
    tokens(seed, 1).first().map_or(0, |token| (token % bound) as usize)
}

/// A seed for one purpose.
fn draw(a: u64, b: u64, purpose: u64) -> u64 {
    (a << 32) ^ (b << 16) ^ purpose
}

#[cfg(test)]
mod tests {
    use super::Plan;

    #[test]
    fn every_turn_is_in_the_order_once() {
        let plan = Plan::new();
        for (number, conversation) in plan.conversations.iter().enumerate() {
            assert_eq!(plan.order.iter().filter(|of| **of == number).count(), conversation.turns.len());
        }
        assert_eq!(plan.order.len(), 264);
    }

    #[test]
    fn conversations_of_one_system_prompt_share_it_and_nothing_more() {
        let plan = Plan::new();
        let (first, second) = (&plan.conversations[0], &plan.conversations[6]);
        assert_eq!(first.system, second.system);
        assert_ne!(first.system, plan.conversations[1].system);
        assert_ne!(first.turns[0][..8], second.turns[0][..8]);
    }
}
