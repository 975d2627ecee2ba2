//! Reads a list of token IDs after its opening bracket. This is the filter's hottest loop: a prompt of 8,192 tokens
//! is 58 KB of digits.
//!
//! Two readers share the work. [`TokenList::feed`] takes byte by byte whatever may come, cut anywhere, and finds every
//! fault. Before each item it lets [`plain_items`] try: that one reads items of the usual form many at a time, and leaves
//! whatever is unusual.

use super::items::plain_items;
use super::{is_blank, skip_blanks};
use crate::prompt::PromptError;

/// Takes the token IDs of a prompt, in their order, while the body is still arriving.
pub trait TokenSink {
    /// Takes the next token ID.
    fn token(&mut self, id: u32);
}

impl TokenSink for Vec<u32> {
    #[inline]
    fn token(&mut self, id: u32) {
        self.push(id);
    }
}

/// A list of token IDs that is being read: `1,2,3]` or `[1,2,3],[4],...]`.
#[derive(Debug, Default)]
pub(super) struct TokenList {
    state: State,
    /// The list is the first within another list.
    is_inner: bool,
    count: usize,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// The first item, or the end.
    #[default]
    First,
    /// A number, after a comma.
    Next,
    /// The rest of a number, which is this so far.
    Number(u32),
    /// A comma or the end.
    After,
}

/// How far the list was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListStep<'a> {
    /// The list goes on in the next piece.
    More,
    /// The list has ended.
    Done(&'a [u8]),
    /// The inner list has ended. The outer list goes on after this item.
    InnerDone(&'a [u8]),
    /// The list begins with something that is no token ID. The rest begins with it.
    NoTokens(&'a [u8]),
}

// === impl TokenList ===

impl TokenList {
    /// How many token IDs have been read.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Whether the list stands within another list.
    pub(super) const fn is_inner(&self) -> bool {
        self.is_inner
    }

    /// Reads on.
    pub(super) fn feed<'a, S: TokenSink>(
        &mut self,
        mut input: &'a [u8],
        sink: &mut S,
    ) -> Result<ListStep<'a>, PromptError> {
        loop {
            if let State::Number(begun) = self.state {
                let (value, rest) = read_digits(begun, input)?;
                if rest.is_empty() {
                    self.state = State::Number(value);
                    return Ok(ListStep::More);
                }
                sink.token(value);
                self.count += 1;
                self.state = State::After;
                input = rest;
            }
            let Some((&byte, rest)) = input.split_first() else { return Ok(ListStep::More) };
            match (self.state, byte) {
                (State::After, b',') => {
                    self.state = State::Next;
                    let (count, rest) = plain_items(rest, sink);
                    self.count += count;
                    input = rest;
                    continue;
                }
                (State::First | State::Next, b'0'..=b'9') => {
                    self.state = State::Number(u32::from(byte - b'0'));
                }
                (_, byte) if is_blank(byte) => {
                    input = skip_blanks(rest);
                    continue;
                }
                (State::First | State::After, b']') => return Ok(self.end(rest)),
                (State::First | State::Next, b'-') => return Err(PromptError::TokenOutOfRange),
                (State::First, b'[') if !self.is_inner => self.is_inner = true,
                (State::First, _) => return Ok(ListStep::NoTokens(input)),
                _ => return Err(PromptError::MalformedBody),
            }
            input = rest;
        }
    }

    fn end<'a>(&self, rest: &'a [u8]) -> ListStep<'a> {
        if self.is_inner { ListStep::InnerDone(rest) } else { ListStep::Done(rest) }
    }
}

/// Reads the digits of a number that has begun with the digits of `value`. The rest begins with the byte after the
/// number; where there is no rest, the number may go on.
fn read_digits(mut value: u32, mut input: &[u8]) -> Result<(u32, &[u8]), PromptError> {
    while let Some((&byte, rest)) = input.split_first() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            if matches!(byte, b'.' | b'e' | b'E') {
                return Err(PromptError::TokenOutOfRange);
            }
            break;
        }
        if value == 0 {
            return Err(PromptError::MalformedBody); // JSON has no leading zeros
        }
        let longer = u64::from(value) * 10 + u64::from(digit);
        value = u32::try_from(longer).map_err(|_| PromptError::TokenOutOfRange)?;
        input = rest;
    }
    Ok((value, input))
}
