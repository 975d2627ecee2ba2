//! Requests that meet what a cache can do.

use std::fmt;

use serde_json::json;
use warmroute_e2e::collector::Question;
use warmroute_e2e::exactness::Request;
use warmroute_e2e::real::{ADAPTER, Traits};
use warmroute_e2e::{Answer, Dice};

/// Conversations that go on side by side.
const CONVERSATIONS: usize = 6;
/// Beginnings that several of them share.
const PREFIXES: usize = 3;
/// Below it are the tokenizer's special tokens.
const FIRST_TOKEN: u64 = 3;
const VOCABULARY: u64 = 512;

/// Draws requests.
pub(crate) struct Mix {
    traits: Traits,
    dice: Dice,
    prefixes: Vec<Vec<u32>>,
    conversations: Vec<Question>,
}

/// What kind of request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    /// The first of a conversation, with a beginning that others have too.
    Begin,
    /// A further turn: all that was said, and more.
    Turn,
    /// The last prompt of a conversation, again.
    Again,
    /// Nothing that anyone has said before.
    Alone,
    /// Less than a block.
    Short,
}

/// A request that was drawn.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) sort: Sort,
    pub(crate) request: Request,
    /// The conversation that it belongs to.
    conversation: Option<usize>,
}

// === impl Mix ===

impl Mix {
    pub(crate) fn new(traits: Traits, seed: u64) -> Self {
        let mut mix = Self { traits, dice: Dice::new(seed), prefixes: Vec::new(), conversations: Vec::new() };
        for _ in 0..PREFIXES {
            // Shared prefixes end within a block, as they do in life.
            let tokens = mix.block(2) + mix.dice.within(0..mix.block(2));
            let prefix = mix.tokens(tokens);
            mix.prefixes.push(prefix);
        }
        for _ in 0..CONVERSATIONS {
            let question = mix.begin();
            mix.conversations.push(question);
        }
        mix
    }

    /// So many blocks, in tokens.
    fn block(&self, blocks: u64) -> u64 {
        blocks * u64::from(self.traits.block_size)
    }

    /// Half of the cache: what is asked fits, and two conversations hardly do.
    fn longest(&self) -> u64 {
        self.block(u64::from(self.traits.num_blocks) / 2)
    }

    fn tokens(&mut self, count: u64) -> Vec<u32> {
        (0..count).map(|_| self.dice.within(FIRST_TOKEN..VOCABULARY) as u32).collect()
    }

    /// A new conversation's first prompt.
    fn begin(&mut self) -> Question {
        let mut tokens = self.dice.pick(&self.prefixes).cloned().unwrap_or_default();
        let more = self.dice.within(1..self.block(2));
        tokens.extend(self.tokens(more));
        let (lora, salt) = self.namespace();
        Question { tokens, lora, salt }
    }

    fn namespace(&mut self) -> (Option<String>, Option<String>) {
        if !self.traits.namespaces {
            return (None, None);
        }
        match self.dice.within(0..10) {
            0 | 1 => (Some(ADAPTER.to_owned()), None),
            2 => (None, Some("tenant-a".to_owned())),
            3 => (None, Some("tenant-b".to_owned())),
            4 => (Some(ADAPTER.to_owned()), Some("tenant-a".to_owned())),
            _ => (None, None),
        }
    }

    /// The next request.
    pub(crate) fn draw(&mut self) -> Drawn {
        let place = self.dice.within(0..CONVERSATIONS as u64) as usize;
        let (sort, question, conversation) = match self.dice.within(0..20) {
            0 => {
                let count = self.dice.within(1..u64::from(self.traits.block_size));
                (Sort::Short, Question { tokens: self.tokens(count), ..Question::default() }, None)
            }
            1..=3 => {
                let count = self.dice.within(self.block(2)..self.longest());
                let (lora, salt) = self.namespace();
                (Sort::Alone, Question { tokens: self.tokens(count), lora, salt }, None)
            }
            4 | 5 => (Sort::Again, self.conversation(place), Some(place)),
            6 | 7 => {
                let question = self.begin();
                self.conversations.splice(place..=place, [question.clone()]);
                (Sort::Begin, question, Some(place))
            }
            _ => {
                let mut question = self.conversation(place);
                let more = self.dice.within(1..self.block(3));
                question.tokens.extend(self.tokens(more));
                if question.tokens.len() as u64 > self.longest() {
                    question = self.begin();
                    (Sort::Begin, question, Some(place))
                } else {
                    (Sort::Turn, question, Some(place))
                }
            }
        };
        let max_tokens = if self.dice.within(0..2) == 0 { 1 } else { self.dice.within(2..20) as u32 };
        let mut request = Request { question, max_tokens, ..Request::default() };
        if self.traits.namespaces {
            request.fields.insert("return_token_ids".to_owned(), json!(true));
        }
        Drawn { sort, request, conversation }
    }

    fn conversation(&self, place: usize) -> Question {
        self.conversations.get(place).cloned().unwrap_or_default()
    }

    /// The conversation goes on with what the engine said. One that does not say it in tokens has said something new.
    pub(crate) fn answered(&mut self, drawn: &Drawn, answer: &Answer) {
        let Some(place) = drawn.conversation else { return };
        let mut question = drawn.request.question.clone();
        if drawn.sort != Sort::Again {
            let said = match answer.token_ids.is_empty() {
                true => self.tokens(answer.usage.completion_tokens),
                false => answer.token_ids.clone(),
            };
            question.tokens.extend(said);
        }
        self.conversations.splice(place..=place, [question]);
    }
}

// === impl Sort ===

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Begin => "begin",
            Self::Turn => "turn",
            Self::Again => "again",
            Self::Alone => "alone",
            Self::Short => "short",
        })
    }
}
