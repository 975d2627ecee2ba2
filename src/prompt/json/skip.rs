//! Passes over any JSON value, by JSON's grammar, in constant memory.

use super::text::Text;
use super::{Step, is_blank};
use crate::prompt::PromptError;

/// How many lists and objects may be open at once, the body's own object included. Python's and Rust's parsers have
/// limits of the same order, so an engine would refuse what lies beyond.
const MAX_DEPTH: u32 = 128;

/// A value that is being passed over.
#[derive(Debug, Default)]
pub(super) struct Skipper {
    state: State,
    open: Open,
    text: Text,
}

/// What may come next.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// A value.
    #[default]
    Value,
    /// A value, or the end of a list that has none.
    FirstItem,
    /// A key, or the end of an object that has none.
    FirstKey,
    /// A key, after a comma.
    Key,
    /// The rest of a key.
    InKey,
    /// The colon after a key.
    Colon,
    /// The rest of a string.
    InText,
    /// The rest of a number.
    InNumber(Number),
    /// The rest of `true`, `false` or `null`.
    InWord(&'static [u8]),
    /// A comma, or the end of the innermost list or object.
    AfterValue,
}

/// Where in a number: `-`? (`0` | digits) (`.` digits)? ([eE] [+-]? digits)?
#[derive(Debug, Clone, Copy)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// The open lists and objects: one bit each, the innermost lowest, 1 for an object.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    kinds: u128,
    depth: u32,
}

// === impl Skipper ===

impl Skipper {
    /// Begins before a value.
    pub(super) fn begin(&mut self) {
        self.state = State::Value;
        self.open = Open::default();
    }

    /// Begins within this many open lists, before the first item of the innermost, or its end.
    pub(super) fn begin_in_lists(&mut self, depth: u32) {
        self.state = State::FirstItem;
        self.open = Open { kinds: 0, depth };
    }

    /// Begins within a list, after one of its items.
    pub(super) fn begin_after_item(&mut self) {
        self.state = State::AfterValue;
        self.open = Open { kinds: 0, depth: 1 };
    }

    /// Reads on to the end of the value. The byte that ends a number is left in the rest.
    pub(super) fn feed<'a>(&mut self, mut input: &'a [u8]) -> Result<Step<'a>, PromptError> {
        loop {
            if let State::InText | State::InKey = self.state {
                let Step::Done(rest) = self.text.feed(input)? else { return Ok(Step::More) };
                input = rest;
                if matches!(self.state, State::InKey) {
                    self.state = State::Colon;
                } else if self.end_value() {
                    return Ok(Step::Done(input));
                }
            }
            let Some((&byte, rest)) = input.split_first() else { return Ok(Step::More) };
            if let State::InNumber(number) = self.state {
                if let Some(next) = number.next(byte)? {
                    self.state = State::InNumber(next);
                    input = rest;
                } else if self.end_value() {
                    return Ok(Step::Done(input));
                }
                continue; // the byte that ends a number is read again, as what it is
            }
            input = rest;
            if self.byte(byte)? {
                return Ok(Step::Done(input));
            }
        }
    }

    /// Takes a byte outside strings and numbers. True when the value ends with it.
    fn byte(&mut self, byte: u8) -> Result<bool, PromptError> {
        match (self.state, byte) {
            (State::InWord(word), _) => {
                let rest = word.strip_prefix(&[byte]).ok_or(PromptError::MalformedBody)?;
                self.state = State::InWord(rest);
                return Ok(rest.is_empty() && self.end_value());
            }
            (_, byte) if is_blank(byte) => {}
            (State::FirstItem, b']') | (State::FirstKey, b'}') => return self.close(byte),
            (State::Value | State::FirstItem, byte) => self.begin_value(byte)?,
            (State::FirstKey | State::Key, b'"') => {
                self.text.begin(0);
                self.state = State::InKey;
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::AfterValue, b',') => {
                self.state = if self.open.in_object() { State::Key } else { State::Value };
            }
            (State::AfterValue, b']' | b'}') => return self.close(byte),
            _ => return Err(PromptError::MalformedBody),
        }
        Ok(false)
    }

    fn begin_value(&mut self, byte: u8) -> Result<(), PromptError> {
        self.state = match byte {
            b'"' => {
                self.text.begin(0);
                State::InText
            }
            b'[' => {
                self.open.push(false)?;
                State::FirstItem
            }
            b'{' => {
                self.open.push(true)?;
                State::FirstKey
            }
            b't' => State::InWord(b"rue"),
            b'f' => State::InWord(b"alse"),
            b'n' => State::InWord(b"ull"),
            b'-' => State::InNumber(Number::Minus),
            b'0' => State::InNumber(Number::Zero),
            b'1'..=b'9' => State::InNumber(Number::Digits),
            _ => return Err(PromptError::MalformedBody),
        };
        Ok(())
    }

    /// Closes the innermost list or object, if the byte is its bracket. True when it was the outermost.
    fn close(&mut self, byte: u8) -> Result<bool, PromptError> {
        if self.open.in_object() != (byte == b'}') {
            return Err(PromptError::MalformedBody);
        }
        self.open.pop();
        Ok(self.end_value())
    }

    /// A value has ended: true when it was the outermost.
    fn end_value(&mut self) -> bool {
        self.state = State::AfterValue;
        self.open.depth == 0
    }
}

// === impl Number ===

impl Number {
    /// Where the number is after the byte, or none where the byte no longer belongs to it.
    fn next(self, byte: u8) -> Result<Option<Self>, PromptError> {
        let next = match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Digits, b'0'..=b'9') => Self::Digits,
            (Self::Zero | Self::Digits, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => Self::ExponentDigits,
            (Self::Zero | Self::Digits | Self::Fraction | Self::ExponentDigits, _) => return Ok(None),
            (Self::Minus | Self::Point | Self::Exponent | Self::ExponentSign, _) => {
                return Err(PromptError::MalformedBody);
            }
        };
        Ok(Some(next))
    }
}

// === impl Open ===

impl Open {
    fn push(&mut self, is_object: bool) -> Result<(), PromptError> {
        // One level is the body's own object, which is not on this stack.
        if self.depth + 1 >= MAX_DEPTH {
            return Err(PromptError::MalformedBody);
        }
        self.kinds = self.kinds << 1 | u128::from(is_object);
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) {
        self.kinds >>= 1;
        self.depth = self.depth.saturating_sub(1);
    }

    const fn in_object(self) -> bool {
        self.kinds & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the value is passed over whole, with `,` left after it; cut after each byte.
    fn passes(value: &str) -> bool {
        let mut skipper = Skipper::default();
        skipper.begin();
        let body = format!("{value},");
        for (position, byte) in body.bytes().enumerate() {
            match skipper.feed(&[byte]) {
                Ok(Step::More) => {}
                Ok(Step::Done(rest)) => return position + 1 - rest.len() == value.len(),
                Err(_) => return false,
            }
        }
        false
    }

    #[test]
    fn every_kind_of_value_is_passed_over() {
        for value in [
            "null",
            "true",
            "false",
            "0",
            "-0",
            "7",
            "-12.50e+07",
            "1E-9",
            r#""a\"b""#,
            r#""""#,
            "[]",
            "{}",
            "[ ]",
            "{ }",
            r#"[1,"]",{"a":[]},[[{}]],null]"#,
            r#"{"a":{"b":[0.5]},"}":""}"#,
            "\n[\t1\r,2 ]",
        ] {
            // The byte after a closed value is not read, so `passes` sees no rest there.
            let closed = value.ends_with(['l', 'e', '"', ']', '}']);
            assert!(passes(value) || closed && passes_closed(value), "{value}");
        }
    }

    fn passes_closed(value: &str) -> bool {
        let mut skipper = Skipper::default();
        skipper.begin();
        matches!(skipper.feed(value.as_bytes()), Ok(Step::Done(rest)) if rest.is_empty())
    }

    #[test]
    fn what_breaks_the_grammar_is_refused() {
        for value in [
            "",
            ",",
            "]",
            "}",
            ":",
            "nul",
            "nulL",
            "True",
            "01",
            "-",
            "+1",
            ".5",
            "1.",
            "1.e5",
            "1e",
            "1e+",
            "-a",
            "NaN",
            "[,]",
            "[1,]",
            "[1 2]",
            "[1:2]",
            "{,}",
            "{1:2}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            r#"{"a":1 "b":2}"#,
            "[}",
            "{]",
            "[1}",
            r#"{"a":1]"#,
            "'a'",
            "\u{a0}1",
            "/**/1",
        ] {
            assert!(!passes(value), "{value}");
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(passes_closed(&nested(127)));
        assert!(!passes_closed(&nested(128)));
        assert!(!passes_closed(&"[".repeat(10_000_000)));
    }
}
