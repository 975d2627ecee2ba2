//! Conversations without end: as one is over, another begins, so that the load is the same in every minute.

use warmroute_e2e::tokens;

use warmroute_e2e::Dice;

/// What conversations begin with is one of so many.
const SYSTEM_PROMPTS: u64 = 6;
const SYSTEM_TOKENS: usize = 900;

/// Turns of one conversation.
const TURNS: u32 = 6;

/// Conversations that go on at the same time.
const LIVE: usize = 48;

/// The conversations that wait for their next turn.
pub(crate) struct Conversations {
    dice: Dice,
    idle: Vec<Conversation>,
}

/// One of them, as it goes.
pub(crate) struct Conversation {
    /// Everything said so far.
    history: Vec<u32>,
    turns: u32,
}

// === impl Conversations ===

impl Conversations {
    pub(crate) fn new(mut dice: Dice) -> Self {
        let idle = (0..LIVE).map(|_| Conversation::new(&mut dice)).collect();
        Self { dice, idle }
    }

    /// A conversation with its next turn said. There is always one: the load does not wait for answers.
    pub(crate) fn take(&mut self) -> Conversation {
        let mut taken = if self.idle.is_empty() {
            Conversation::new(&mut self.dice)
        } else {
            let number = self.dice.within(0..self.idle.len() as u64) as usize;
            self.idle.swap_remove(number)
        };
        let said = self.dice.within(20..160) as usize;
        taken.history.extend(tokens(self.dice.roll(), said));
        taken.turns += 1;
        taken
    }

    /// Takes it back after its turn was answered.
    pub(crate) fn give_back(&mut self, mut conversation: Conversation, answer: &[u32]) {
        conversation.history.extend_from_slice(answer);
        if self.idle.len() >= LIVE {
            return;
        }
        let is_over = conversation.turns >= TURNS;
        self.idle.push(if is_over { Conversation::new(&mut self.dice) } else { conversation });
    }
}

// === impl Conversation ===

impl Conversation {
    fn new(dice: &mut Dice) -> Self {
        let system = dice.within(0..SYSTEM_PROMPTS);
        Self { history: tokens(system, SYSTEM_TOKENS), turns: 0 }
    }

    /// The prompt: all that was said.
    pub(crate) fn prompt(&self) -> &[u32] {
        &self.history
    }
}

#[cfg(test)]
mod tests {
    use super::{Conversations, LIVE, SYSTEM_TOKENS, TURNS};
    use warmroute_e2e::Dice;

    #[test]
    fn they_grow_turn_by_turn_and_never_run_out() {
        let mut conversations = Conversations::new(Dice::new(1));
        for _ in 0..LIVE * 20 {
            let conversation = conversations.take();
            let longest = SYSTEM_TOKENS + TURNS as usize * (160 + 3);
            assert!((SYSTEM_TOKENS + 20..longest).contains(&conversation.prompt().len()));
            conversations.give_back(conversation, &[1, 2, 3]);
        }
        let taken: Vec<_> = (0..LIVE * 2).map(|_| conversations.take()).collect();
        assert_eq!(taken.len(), LIVE * 2);
    }
}
