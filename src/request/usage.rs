//! How many tokens of a prompt the engine had cached, by its own answer.
//!
//! vLLM and SGLang say it as `usage.prompt_tokens_details.cached_tokens` in a JSON answer or in the last event of a stream
//! with `include_usage`, SGLang on `/generate` as `meta_info.cached_tokens`. All of them are a member of that name in JSON
//! text, so that is looked for, in whatever pieces the answer comes. What is generated cannot be mistaken for it: within a
//! JSON string the quotation mark after the name is escaped. The last one counts.

const KEY: &[u8] = b"\"cached_tokens\"";

/// Looks for the number in an answer that comes in pieces, in constant memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsageReader {
    state: State,
    found: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// So many bytes of the key were seen.
    Key(usize),
    /// The key was seen, and a colon is to come.
    Colon,
    /// The number is to come.
    Value,
    /// The number so far.
    Number(u64),
}

impl Default for State {
    fn default() -> Self {
        Self::Key(0)
    }
}

// === impl UsageReader ===

impl UsageReader {
    /// Reads on.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((byte, rest)) = bytes.split_first() {
            // Almost all of an answer is none of it.
            if matches!(self.state, State::Key(0)) {
                let Some(quote) = bytes.iter().position(|byte| *byte == b'"') else { return };
                bytes = bytes.get(quote + 1..).unwrap_or_default();
                self.state = State::Key(1);
                continue;
            }
            bytes = rest;
            self.state = self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) -> State {
        // The key's only quotation marks are its first byte and its last, so what breaks off can only begin anew.
        let anew = if byte == b'"' { State::Key(1) } else { State::Key(0) };
        match (self.state, byte) {
            (State::Key(seen), _) => match KEY.get(seen) {
                Some(expected) if *expected == byte && seen + 1 == KEY.len() => State::Colon,
                Some(expected) if *expected == byte => State::Key(seen + 1),
                _ => anew,
            },
            (State::Colon | State::Value, b' ' | b'\t' | b'\n' | b'\r') => self.state,
            (State::Colon, b':') => State::Value,
            (State::Value, b'0'..=b'9') => self.number(0, byte),
            (State::Number(so_far), b'0'..=b'9') => self.number(so_far, byte),
            _ => anew,
        }
    }

    fn number(&mut self, so_far: u64, digit: u8) -> State {
        let number = so_far.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
        self.found = Some(number);
        State::Number(number)
    }

    /// Something was passed over: what was half seen is forgotten.
    pub(super) fn skip(&mut self) {
        self.state = State::default();
    }

    /// Tokens that were cached, as far as was read; none, if the answer does not say.
    pub(super) fn cached_tokens(&self) -> Option<u64> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, step: usize) -> Option<u64> {
        let mut reader = UsageReader::default();
        text.as_bytes().chunks(step).for_each(|piece| reader.feed(piece));
        reader.cached_tokens()
    }

    #[test]
    fn finds_what_engines_say_however_it_is_cut() {
        let answers = [
            r#"{"choices":[{"text":"hi"}],"usage":{"prompt_tokens":512,"prompt_tokens_details":{"cached_tokens":496}}}"#,
            "data: {\"choices\":[{\"text\":\"hi\"}],\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\": 496}}}\n\ndata: [DONE]\n\n",
            r#"{"text":"x","meta_info":{"id":"1","cached_tokens" : 496,"e2e_latency":0.1}}"#,
        ];
        for answer in answers {
            for step in 1..answer.len() {
                assert_eq!(read(answer, step), Some(496), "{answer} in pieces of {step}");
            }
        }
    }

    #[test]
    fn what_is_generated_is_not_mistaken_for_it() {
        let text = serde_json::json!({ "text": r#""cached_tokens": 7, \"cached_tokens\": 8"# }).to_string();
        assert_eq!(read(&text, 3), None);
        let inner = serde_json::json!({ "arguments": text, "usage": { "cached_tokens": 5 } }).to_string();
        assert_eq!(read(&inner, 1), Some(5));
    }

    #[test]
    fn an_answer_that_does_not_say_says_nothing() {
        for text in
            ["", "\"", r#"{"cached_tokens":null}"#, r#"{"cached_tokens":"12"}"#, r#"{"cached_tokens"}"#]
        {
            assert_eq!(read(text, 1), None, "{text}");
        }
        assert_eq!(read(r#"{"usage":{"cached_tokens":0}}"#, 2), Some(0));
        assert_eq!(read(r#""cached_tokens":99999999999999999999999"#, 2), Some(u64::MAX));
    }
}
