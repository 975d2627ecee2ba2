//! The items of a list of token IDs in their usual form: up to seven digits and a comma, with one blank before them or none.
//!
//! No branch here depends on an item's length: a loop over digits costs a mispredicted branch for nearly every token.
//! Sixty-four bytes at a time are classified, one bit for each byte. Each comma then ends an item, whose digits are read
//! as one word:
//!
//! ```text
//! bytes    1 2 3 4 , 6 7 , 8 ...
//! commas   0 0 0 0 1 0 0 1 0       -> items end at 4 and 7
//! word     the eight bytes before the comma -> what is before the item made zero: 0 0 0 0 1 2 3 4
//!          -> in pairs 00 00 12 34 -> in fours 0000 1234 -> 1234
//! ```
//!
//! Whatever is unusual is left to the caller: a cut, a fault, eight digits or more, the last item.

use super::tokens::TokenSink;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHEST_BITS: u64 = ONES * 0x80;

/// Bytes that are classified together.
const BLOCK: usize = 64;

/// A block's bytes by their kind: bit `i` is byte `i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kinds {
    commas: u64,
    blanks: u64,
    /// Neither these nor digits.
    others: u64,
}

/// Reads the items of the usual form that come next, the first of which begins with the input. Gives how many there were,
/// and what follows the comma of the last.
pub(super) fn plain_items<'a>(input: &'a [u8], sink: &mut impl TokenSink) -> (usize, &'a [u8]) {
    let (mut count, mut rest) = (0, input);
    // A word is read backwards from its comma: there must be as many bytes before.
    while input.len() - rest.len() < size_of::<u64>() {
        let Some((id, after)) = plain_item(rest) else { return (count, rest) };
        sink.token(id);
        (count, rest) = (count + 1, after);
    }
    let (in_blocks, from) = items_in_blocks(input, input.len() - rest.len(), sink);
    (count, rest) = (count + in_blocks, input.get(from..).unwrap_or_default());
    // The end of the input is less than a block.
    while let Some((id, after)) = plain_item(rest) {
        sink.token(id);
        (count, rest) = (count + 1, after);
    }
    (count, rest)
}

/// Reads the items of the usual form from `start` on, where an item begins. Gives how many there were, and where the next
/// begins.
fn items_in_blocks(input: &[u8], mut start: usize, sink: &mut impl TokenSink) -> (usize, usize) {
    let (mut count, mut at) = (0, start);
    let mut after_comma = 1; // whether the byte before the block is a comma, as its first bit
    while let Some(block) = input.get(at..).and_then(<[u8]>::first_chunk) {
        let kinds = Kinds::of(block);
        let faults = kinds.others | (kinds.blanks & !(kinds.commas << 1 | after_comma));
        after_comma = kinds.commas >> (BLOCK - 1);
        let before_fault = (faults & faults.wrapping_neg()).wrapping_sub(1);
        let mut commas = kinds.commas & before_fault;
        while commas != 0 {
            let comma = at + commas.trailing_zeros() as usize;
            commas &= commas - 1;
            let Some(id) = item_before(input, start, comma) else { return (count, start) };
            sink.token(id);
            count += 1;
            start = comma + 1;
        }
        if faults != 0 {
            break;
        }
        at += BLOCK;
    }
    (count, start)
}

/// The item from `start` up to the comma, between which are only digits, and perhaps a blank before them.
#[inline]
fn item_before(input: &[u8], start: usize, comma: usize) -> Option<u32> {
    let word = u64::from_le_bytes(*input.get(..comma)?.last_chunk()?);
    let blank = usize::from(input.get(start) == Some(&b' '));
    let digits = comma - start - blank;
    if !(1..8).contains(&digits) {
        return None;
    }
    let before_item = (64 - 8 * digits) as u32;
    let item = (word ^ (ONES * b'0' as u64)) >> before_item;
    let has_leading_zero = item & 0xff == 0 && digits > 1;
    (!has_leading_zero).then(|| decimal(item << before_item))
}

/// The number whose eight digits, the first lowest, are the word's bytes.
#[inline]
const fn decimal(digits: u64) -> u32 {
    let pairs = (digits.wrapping_mul(1 + (10 << 8)) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(1 + (100 << 16)) >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(1 + (10_000 << 32)) >> 32) as u32
}

/// Reads an item and its comma, if all of that lies within the next eight bytes.
#[inline]
fn plain_item(input: &[u8]) -> Option<(u32, &[u8])> {
    let word = u64::from_le_bytes(*input.first_chunk()?);
    let blank = if word & 0xff == u64::from(b' ') { 8 } else { 0 };
    let word = word >> blank;
    let end = not_digits(word).trailing_zeros() & !7; // the bits of the digits; 64 where all eight are
    let is_usual = (8..64).contains(&end) && (word.checked_shr(end)? & 0xff) == u64::from(b',');
    let digits = word ^ (ONES * b'0' as u64);
    let has_leading_zero = digits & 0xff == 0 && end > 8;
    if !is_usual || has_leading_zero {
        return None;
    }
    let comma = usize::try_from((end + blank) / 8).ok()?;
    Some((decimal(digits << (64 - end)), input.get(comma + 1..)?))
}

/// The highest bit of each byte that is no digit.
#[inline]
const fn not_digits(word: u64) -> u64 {
    let digits = word ^ (ONES * b'0' as u64); // each digit's value; above 9 for every other byte
    (((digits & !HIGHEST_BITS) + ONES * (0x7f - 9)) | digits) & HIGHEST_BITS
}

// === impl Kinds ===

impl Kinds {
    #[cfg(not(target_feature = "simd128"))]
    fn of(block: &[u8; BLOCK]) -> Self {
        Self::by_words(block)
    }

    /// Eight bytes at a time, for machines of any kind.
    #[cfg(any(test, not(target_feature = "simd128")))]
    fn by_words(block: &[u8; BLOCK]) -> Self {
        let (mut commas, mut blanks, mut not_digit) = (0, 0, 0);
        for (i, word) in block.as_chunks().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            commas |= gathered(equal(word, b',')) << (8 * i);
            blanks |= gathered(equal(word, b' ')) << (8 * i);
            not_digit |= gathered(not_digits(word)) << (8 * i);
        }
        Self { commas, blanks, others: not_digit & !commas & !blanks }
    }

    /// Sixteen bytes at a time, in WebAssembly.
    #[cfg(target_feature = "simd128")]
    fn of(block: &[u8; BLOCK]) -> Self {
        use std::arch::wasm32::{u8x16_bitmask, u8x16_eq, u8x16_gt, u8x16_splat, u8x16_sub, u64x2};

        let (mut commas, mut blanks, mut not_digit) = (0, 0, 0);
        for (i, halves) in block.as_chunks().0.as_chunks().0.iter().enumerate() {
            let [low, high] = halves.map(u64::from_le_bytes);
            let bytes = u64x2(low, high);
            let bits = |mask| u64::from(u8x16_bitmask(mask)) << (16 * i);
            commas |= bits(u8x16_eq(bytes, u8x16_splat(b',')));
            blanks |= bits(u8x16_eq(bytes, u8x16_splat(b' ')));
            not_digit |= bits(u8x16_gt(u8x16_sub(bytes, u8x16_splat(b'0')), u8x16_splat(9)));
        }
        Self { commas, blanks, others: not_digit & !commas & !blanks }
    }
}

/// The highest bit of each of the word's bytes that is this one.
#[cfg(any(test, not(target_feature = "simd128")))]
const fn equal(word: u64, byte: u8) -> u64 {
    let difference = word ^ (ONES * byte as u64);
    // Adding to seven bits carries into the eighth unless they are all zero, and never further.
    !(((difference & !HIGHEST_BITS) + !HIGHEST_BITS) | difference) & HIGHEST_BITS
}

/// The highest bits of the word's bytes, side by side, the lowest byte's first.
#[cfg(any(test, not(target_feature = "simd128")))]
const fn gathered(highest_bits: u64) -> u64 {
    (highest_bits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    #[test]
    fn each_byte_is_of_its_kind_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for place in 0..BLOCK {
                let mut block = [b'5'; BLOCK];
                block[place] = byte;
                let bit = 1 << place;
                let of = |is: bool| if is { bit } else { 0 };
                let others = of(!byte.is_ascii_digit() && byte != b',' && byte != b' ');
                let kinds = Kinds { commas: of(byte == b','), blanks: of(byte == b' '), others };
                assert_eq!(Kinds::by_words(&block), kinds, "{byte} at {place}");
            }
        }
    }

    /// What `plain_items` must read, item by item.
    fn one_by_one(mut input: &str) -> Vec<u32> {
        let mut ids = vec![];
        while let Some((item, rest)) = input.split_once(',') {
            let digits = item.strip_prefix(' ').unwrap_or(item);
            let is_number =
                (1..8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            if !is_number || digits.len() > 1 && digits.starts_with('0') {
                break;
            }
            ids.push(digits.parse().unwrap());
            input = rest;
        }
        ids
    }

    /// Items, most of them usual.
    fn list() -> impl Strategy<Value = String> {
        let item = prop_oneof![
            200 => "[ ]?[1-9][0-9]{0,6}",
            10 => "[ ]?[0-9]{1,9}",
            1 => "[0-9:/ .a-]{0,9}",
        ];
        (prop::collection::vec(item, 0..80), prop::sample::select(vec!["", ",", "]", "12"]))
            .prop_map(|(items, end)| items.join(",") + end)
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

        #[test]
        fn many_at_once_are_read_as_one_by_one(input in list()) {
            let mut ids = vec![];
            let (count, rest) = plain_items(input.as_bytes(), &mut ids);
            let expected = one_by_one(&input);
            prop_assert_eq!(count, ids.len());
            prop_assert_eq!(&ids[..], &expected[..count]);
            // Some may be left, such as need more bytes behind them; none is lost.
            prop_assert_eq!(one_by_one(std::str::from_utf8(rest).unwrap()), &expected[count..]);
        }
    }
}
