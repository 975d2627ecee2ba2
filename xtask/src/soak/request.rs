//! What is asked, and how.

use serde_json::{Value, json};
use warmroute_e2e::client::completion;
use warmroute_e2e::tokens;

use warmroute_e2e::Dice;

const ODD_TYPES: [&str; 6] = [
    "text/plain",
    "APPLICATION/JSON",
    "application/json; charset=utf-8",
    "application/x-ndjson",
    "application/octet-stream",
    "multipart/form-data; boundary=x",
];

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A conversation's next turn, answered in one piece.
    Turn,
    /// A conversation's next turn, answered as a stream.
    StreamedTurn,
    /// A prompt of text, which the filter does not read.
    Text,
    /// A prompt shorter than a block.
    Short,
    /// A prompt in a header.
    Header,
    /// A prompt under a content type that may or may not be read.
    OddType,
    /// A client that leaves while it waits for the answer.
    LeavesWaiting,
    /// A client that leaves in the middle of its body.
    LeavesSending,
    /// Through plain Envoy, to see what it makes of the same engines. Not asserted.
    Plain,
}

/// Of 100 requests, so many are of a kind.
const SHARES: [(Kind, u64); 9] = [
    (Kind::Turn, 55),
    (Kind::StreamedTurn, 15),
    (Kind::Text, 7),
    (Kind::Short, 5),
    (Kind::Header, 5),
    (Kind::OddType, 4),
    (Kind::LeavesWaiting, 3),
    (Kind::LeavesSending, 2),
    (Kind::Plain, 4),
];

/// A request's body, and the headers beside it.
pub(crate) struct Request {
    pub(crate) body: Value,
    pub(crate) content_type: &'static str,
    /// The prompt in a header.
    pub(crate) tokens: Option<String>,
}

// === impl Kind ===

impl Kind {
    /// A kind, as often as its share says.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let mut left = dice.within(0..SHARES.iter().map(|(_, share)| share).sum());
        for (kind, share) in SHARES {
            if left < share {
                return kind;
            }
            left -= share;
        }
        Self::Turn
    }

    /// Its name in the report.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::StreamedTurn => "streamed_turn",
            Self::Text => "text",
            Self::Short => "short",
            Self::Header => "header",
            Self::OddType => "odd_type",
            Self::LeavesWaiting => "leaves_waiting",
            Self::LeavesSending => "leaves_sending",
            Self::Plain => "plain_envoy",
        }
    }

    /// Whether it asks with a conversation's prompt.
    pub(crate) fn is_turn(self) -> bool {
        matches!(self, Self::Turn | Self::StreamedTurn)
    }
}

// === impl Request ===

impl Request {
    /// A request of a kind. `prompt` is a conversation's, where it is a turn of one.
    pub(crate) fn new(kind: Kind, prompt: &[u32], dice: &mut Dice) -> Self {
        let answer = dice.within(2..12) as u32;
        // One of a few prompts, so that some of them are warm.
        let mut few = |tokens_in_it| tokens(1 << 32 | dice.within(0..16), tokens_in_it);
        let mut request = Self { body: Value::Null, content_type: "application/json", tokens: None };
        request.body = match kind {
            Kind::Turn => completion(prompt, answer),
            // Long enough to be met by the end of its engine now and then.
            Kind::StreamedTurn => streamed(completion(prompt, answer * 20)),
            Kind::Text => {
                let text = "the same words again, ".repeat(1 + dice.within(0..12) as usize);
                json!({ "model": "sim", "prompt": text, "max_tokens": answer })
            }
            Kind::Short => completion(&few(7), answer),
            Kind::OddType => {
                request.content_type = dice.pick(&ODD_TYPES).copied().unwrap_or("text/plain");
                completion(&tokens(2 << 32 | dice.within(0..16), 256), answer)
            }
            Kind::Header => {
                let prompt = few(384);
                let list: Vec<_> = prompt.iter().map(u32::to_string).collect();
                request.tokens = Some(list.join(","));
                completion(&prompt, answer)
            }
            Kind::LeavesWaiting => streamed(completion(&few(512), 64)),
            Kind::LeavesSending | Kind::Plain => completion(&few(512), answer),
        };
        request
    }
}

fn streamed(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.insert("stream".to_owned(), json!(true));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::{Kind, SHARES};
    use warmroute_e2e::Dice;

    #[test]
    fn every_kind_is_drawn_about_as_often_as_it_should_be() {
        assert_eq!(SHARES.iter().map(|(_, share)| share).sum::<u64>(), 100);
        let mut dice = Dice::new(1);
        let drawn: Vec<_> = (0..10_000).map(|_| Kind::draw(&mut dice)).collect();
        for (kind, share) in SHARES {
            let count = drawn.iter().filter(|is| **is == kind).count() as u64;
            assert!((share * 70..share * 130).contains(&count), "{kind:?}: {count}");
        }
    }
}
