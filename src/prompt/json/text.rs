//! Reads a JSON string after its opening quote, and keeps it where that is asked for.

use super::Step;
use crate::prompt::PromptError;

/// A string that is being read. It can be used again and again and keeps its buffer.
#[derive(Debug, Default)]
pub(super) struct Text {
    state: State,
    /// The string so far, escapes resolved, as UTF-8 if the body is.
    kept: Vec<u8>,
    /// The most bytes to keep.
    limit: usize,
    /// The string does not fit the limit, or is no Unicode text. Nothing more is kept.
    is_lost: bool,
    /// The first half of a surrogate pair, whose second half must come next.
    high_surrogate: Option<u16>,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Plain,
    /// After a backslash.
    Escape,
    /// Within the four digits of `\uXXXX`.
    Hex { digits: u8, value: u16 },
}

// === impl Text ===

impl Text {
    /// Begins a string of which at most `limit` bytes are kept. With 0 it is only passed over.
    pub(super) fn begin(&mut self, limit: usize) {
        self.kept.clear();
        self.limit = limit;
        self.is_lost = limit == 0;
        self.state = State::Plain;
        self.high_surrogate = None;
    }

    /// The bytes of the string that was read, or none where it was too long to keep or is no Unicode text.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        (!self.is_lost).then_some(self.kept.as_slice())
    }

    /// Reads on. What is passed over is checked for its escapes and for control characters, not for UTF-8.
    pub(super) fn feed<'a>(&mut self, mut input: &'a [u8]) -> Result<Step<'a>, PromptError> {
        loop {
            if matches!(self.state, State::Plain) {
                let (plain, rest) = input.split_at_checked(plain_bytes(input)).unwrap_or((input, &[]));
                if !plain.is_empty() {
                    self.keep(plain);
                }
                input = rest;
            }
            let Some((&byte, rest)) = input.split_first() else { return Ok(Step::More) };
            input = rest;
            match self.state {
                State::Plain => match byte {
                    b'"' => {
                        self.end_pair();
                        return Ok(Step::Done(input));
                    }
                    b'\\' => self.state = State::Escape,
                    _ => return Err(PromptError::MalformedBody), // a control character
                },
                State::Escape => self.escape(byte)?,
                State::Hex { digits, value } => self.hex_digit(byte, digits, value)?,
            }
        }
    }

    fn escape(&mut self, byte: u8) -> Result<(), PromptError> {
        let character = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.state = State::Hex { digits: 0, value: 0 };
                return Ok(());
            }
            _ => return Err(PromptError::MalformedBody),
        };
        self.state = State::Plain;
        self.keep(&[character]);
        Ok(())
    }

    fn hex_digit(&mut self, byte: u8, digits: u8, value: u16) -> Result<(), PromptError> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return Err(PromptError::MalformedBody),
        };
        let value = value << 4 | u16::from(digit);
        if digits < 3 {
            self.state = State::Hex { digits: digits + 1, value };
        } else {
            self.state = State::Plain;
            self.code_unit(value);
        }
        Ok(())
    }

    /// Takes one UTF-16 code unit, as `\uXXXX` writes it.
    fn code_unit(&mut self, unit: u16) {
        let high = self.high_surrogate.take();
        if (0xd800..0xdc00).contains(&unit) {
            self.is_lost |= high.is_some();
            self.high_surrogate = Some(unit);
            return;
        }
        let units = high.into_iter().chain([unit]);
        for character in char::decode_utf16(units) {
            match character {
                Ok(character) => self.keep(character.encode_utf8(&mut [0; 4]).as_bytes()),
                Err(_) => self.is_lost = true,
            }
        }
    }

    /// Anything but the second half after the first half of a pair is no Unicode text.
    fn end_pair(&mut self) {
        self.is_lost |= self.high_surrogate.take().is_some();
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.end_pair();
        if self.is_lost {
            return;
        }
        if self.kept.len() + bytes.len() > self.limit {
            self.is_lost = true;
        } else {
            self.kept.extend_from_slice(bytes);
        }
    }
}

/// How many bytes at the beginning are neither quote, backslash nor control character.
///
/// Most of a large body is text, so this looks at eight bytes at once.
fn plain_bytes(input: &[u8]) -> usize {
    let (words, _) = input.as_chunks::<8>();
    let plain_words = words.iter().take_while(|word| is_plain_word(u64::from_le_bytes(**word))).count();
    let plain = plain_words * 8;
    let rest = input.get(plain..).unwrap_or_default();
    plain + rest.iter().take_while(|byte| is_plain(**byte)).count()
}

const fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// Whether all eight bytes are plain. `x - ONES & !x & HIGHS` is not zero if and only if a byte of `x` is zero, and
/// with 0x20 for the ones, if and only if a byte is below 0x20.
const fn is_plain_word(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let special = control | (quote.wrapping_sub(ONES) & !quote) | (backslash.wrapping_sub(ONES) & !backslash);
    special & HIGHS == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a whole string, cut after each byte, and gives what was kept.
    fn read(body: &[u8], limit: usize) -> Result<Option<Vec<u8>>, PromptError> {
        let mut text = Text::default();
        text.begin(limit);
        for byte in body {
            if let Step::Done(rest) = text.feed(std::slice::from_ref(byte))? {
                assert!(rest.is_empty());
                return Ok(text.bytes().map(<[u8]>::to_vec));
            }
        }
        panic!("no end in {body:?}");
    }

    #[test]
    fn escapes_are_resolved() {
        let kept = read(br#"a\"\\\/\b\f\n\r\t\u00e9\u20AC\ud83d\ude00z""#, 100);
        assert_eq!(kept, Ok(Some("a\"\\/\u{8}\u{c}\n\r\t\u{e9}\u{20ac}\u{1f600}z".as_bytes().to_vec())));
    }

    #[test]
    fn half_a_surrogate_pair_is_lost() {
        for body in [
            r#"\ud83d""#,
            r#"\ude00""#,
            r#"\ud83dx""#,
            r#"\ud83d\n""#,
            r#"\ud83d\u0041""#,
            r#"\ud83d\ud83d\ude00""#,
        ] {
            assert_eq!(read(body.as_bytes(), 100), Ok(None), "{body}");
        }
    }

    #[test]
    fn a_string_is_kept_up_to_its_limit() {
        assert_eq!(read(b"abcd\"", 4), Ok(Some(b"abcd".to_vec())));
        assert_eq!(read(b"abcde\"", 4), Ok(None));
        assert_eq!(read(br#"abc\u00e9""#, 4), Ok(None));
        assert_eq!(read(b"\"", 0), Ok(None));
    }

    #[test]
    fn broken_strings_are_refused() {
        for body in [&b"\n"[..], b"\0", b"\x1f", br"\x", br"\u12g4", br"\'", b"\\\n"] {
            let mut text = Text::default();
            text.begin(10);
            assert_eq!(text.feed(body), Err(PromptError::MalformedBody), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn eight_bytes_at_once_find_what_one_byte_finds(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let slowly = bytes.iter().take_while(|byte| is_plain(**byte)).count();
            prop_assert_eq!(plain_bytes(&bytes), slowly);
        }

        #[test]
        fn each_byte_is_plain_in_a_word_as_it_is_alone(byte: u8, place in 0_usize..8, filler in 0x23_u8..0x5c) {
            let mut word = [filler; 8];
            word[place] = byte;
            prop_assert_eq!(is_plain_word(u64::from_le_bytes(word)), is_plain(byte));
        }
    }
}
