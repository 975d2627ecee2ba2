//! Reads a list of token IDs after its opening bracket. This is the filter's hottest loop: a prompt of 8,192 tokens
//! is 58 KB of digits.
//!
//! Two readers share the work. [`TokenList::feed`] takes byte by byte whatever may come, cut anywhere, and finds every
//! fault. Before each item it lets [`plain_item`] try: that one reads an item of the usual form at once, without a
//! branch on its length (a loop over digits costs a mispredicted branch for nearly every token), and declines whatever
//! is unusual: a cut, a fault, eight digits or more, the last item.

use super::{is_blank, skip_blanks};
use crate::prompt::PromptError;

/// Takes the token IDs of a prompt, in their order, while the body is still arriving.
pub trait TokenSink {
    /// Takes the next token ID.
    fn token(&mut self, id: u32);
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
                    input = self.plain_items(rest, sink);
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

    /// Reads the items of the usual form that come next, and gives what follows their last comma.
    fn plain_items<'a, S: TokenSink>(&mut self, mut input: &'a [u8], sink: &mut S) -> &'a [u8] {
        let mut count = self.count;
        while let Some((id, rest)) = plain_item(input) {
            sink.token(id);
            count += 1;
            input = rest;
        }
        self.count = count;
        input
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

/// Reads an item and its comma, with one blank before it or none, if all of that lies within the next eight bytes. It
/// declines anything else.
///
/// The eight bytes are looked at as one little-endian word, so that the first digit is the lowest byte:
///
/// ```text
/// "1234,67," -> digits end at byte 4 -> shifted up:  0 0 0 0 1 2 3 4 -> pairs 00 00 12 34 -> 0000 1234 -> 1234
/// ```
#[inline]
fn plain_item(input: &[u8]) -> Option<(u32, &[u8])> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(*input.first_chunk()?);
    let blank = if word & 0xff == u64::from(b' ') { 8 } else { 0 };
    let word = word >> blank;
    let digits = word ^ (ONES * b'0' as u64); // each digit's value; above 9 for every other byte
    // A byte above 9 gets its highest bit. It may carry into the bytes above it, but the lowest such byte is what counts.
    let above_nine = (digits.wrapping_add(ONES * (0x7f - 9)) | digits) & (ONES * 0x80);
    let end = above_nine.trailing_zeros() & !7; // the bits of the digits; 64 where all eight are
    let is_usual = (8..64).contains(&end) && (word.checked_shr(end)? & 0xff) == u64::from(b',');
    let has_leading_zero = digits & 0xff == 0 && end > 8;
    if !is_usual || has_leading_zero {
        return None;
    }
    let value = digits << (64 - end); // the digits before the first are zeros now
    let value = (value.wrapping_mul(1 + (10 << 8)) >> 8) & 0x00ff_00ff_00ff_00ff;
    let value = (value.wrapping_mul(1 + (100 << 16)) >> 16) & 0x0000_ffff_0000_ffff;
    let value = value.wrapping_mul(1 + (10_000 << 32)) >> 32;
    let comma = usize::try_from((end + blank) / 8).ok()?;
    Some((u32::try_from(value).ok()?, input.get(comma + 1..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::plain_item;

    #[test]
    fn an_item_of_the_usual_form_is_read_at_once() {
        for (item, id) in
            [("0", 0), ("7", 7), ("10", 10), ("128000", 128_000), ("9999999", 9_999_999), (" 42", 42)]
        {
            let input = format!("{item},12345678");
            assert_eq!(plain_item(input.as_bytes()), Some((id, &b"12345678"[..])), "{item}");
        }
    }

    #[test]
    fn anything_unusual_is_declined() {
        for input in [
            "",
            "1",
            "1,",
            "123456,",
            "12345678,9",
            "01,234567",
            "00,234567",
            "1]345678",
            ",2345678",
            "  1,34567",
            "1 ,34567",
            "-1,34567",
            "1.5,4567",
            "1e2,4567",
            "1/,34567",
            "1:,34567",
            "\u{b1},2345678",
            "1\u{b0}34567",
            "null,678",
        ] {
            assert_eq!(plain_item(input.as_bytes()), None, "{input}");
        }
    }

    proptest! {
        #[test]
        fn eight_bytes_at_once_read_what_parse_reads(input in "[ ]?[0-9,:/ ]{7,12}") {
            let item = input.strip_prefix(' ').unwrap_or(&input);
            let expected = item.split_once(',').and_then(|(digits, rest)| {
                let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                let is_usual = is_number && (digits.len() == 1 || !digits.starts_with('0'));
                let is_near = input.len() >= 8 && input.len() - rest.len() <= 8;
                (is_usual && is_near).then(|| (digits.parse().unwrap(), rest.as_bytes()))
            });
            prop_assert_eq!(plain_item(input.as_bytes()), expected);
        }
    }
}
