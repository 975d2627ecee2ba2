//! Prompts in request headers, for clients and gateways that have tokenized already.
//!
//! ```text
//! decimal list:  1, 2 3,4        commas, blanks or both between the items; brackets around the whole may be there
//! base64:        AQAAAAIAAAA=    little-endian u32, four bytes a token
//! block hashes:  00112233aabbccdd 8899aabb00112233
//! ```
//!
//! Header values are bytes: nothing here asks for UTF-8. An empty value is an empty list.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::PromptError;

/// The standard alphabet. Padding is optional: some clients strip it, since `=` needs quotes in some shells.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Hexadecimal digits in a block hash.
const HASH_DIGITS: usize = 16;

/// Token IDs as a decimal list, such as `1, 2 3` or `[1,2,3]`.
///
/// # Errors
///
/// [`PromptError::TokenOutOfRange`] for a number of 2^32 or more, [`PromptError::BadHeader`] for anything that is no
/// such list.
pub fn decimal_tokens(value: &[u8]) -> Result<Vec<u32>, PromptError> {
    read_items(without_brackets(value.trim_ascii())?, decimal_token)
}

/// Token IDs as base64 of little-endian u32.
///
/// # Errors
///
/// [`PromptError::BadHeader`] for what is no base64, or no whole number of tokens.
pub fn base64_tokens(value: &[u8]) -> Result<Vec<u32>, PromptError> {
    let bytes = BASE64.decode(value.trim_ascii()).map_err(|_| PromptError::BadHeader)?;
    let (tokens, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(PromptError::BadHeader);
    }
    Ok(tokens.iter().map(|token| u32::from_le_bytes(*token)).collect())
}

/// Sequence hashes of 16 hexadecimal digits each, separated by commas or blanks.
///
/// # Errors
///
/// [`PromptError::BadHeader`] for anything that is no such list.
pub fn block_hashes(value: &[u8]) -> Result<Vec<u64>, PromptError> {
    let value = value.trim_ascii();
    // The usual form, one comma after each but the last, needs no search for where an item ends.
    let mut hashes = Vec::with_capacity(value.len() / (HASH_DIGITS + 1) + 1);
    let (items, last) = value.as_chunks::<{ HASH_DIGITS + 1 }>();
    for [digits @ .., separator] in items {
        match block_hash(digits) {
            Ok(hash) if *separator == b',' => hashes.push(hash),
            _ => return read_items(value, block_hash),
        }
    }
    match block_hash(last) {
        Ok(hash) => hashes.push(hash),
        Err(_) => return read_items(value, block_hash),
    }
    Ok(hashes)
}

/// Reads items that are separated by blanks, by a comma, or by both.
fn read_items<T>(list: &[u8], read: fn(&[u8]) -> Result<T, PromptError>) -> Result<Vec<T>, PromptError> {
    let mut items = Vec::new();
    if list.is_empty() {
        return Ok(items);
    }
    for part in list.split(|byte| *byte == b',') {
        let before = items.len();
        for item in part.split(u8::is_ascii_whitespace).filter(|item| !item.is_empty()) {
            items.push(read(item)?);
        }
        if items.len() == before {
            return Err(PromptError::BadHeader); // nothing between two commas
        }
    }
    Ok(items)
}

/// What stands within the brackets, where there are any.
fn without_brackets(value: &[u8]) -> Result<&[u8], PromptError> {
    match value.strip_prefix(b"[") {
        None => Ok(value),
        Some(open) => open.strip_suffix(b"]").map(<[u8]>::trim_ascii).ok_or(PromptError::BadHeader),
    }
}

fn decimal_token(item: &[u8]) -> Result<u32, PromptError> {
    let mut token = 0_u32;
    let mut fits = true;
    for byte in item {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(PromptError::BadHeader);
        }
        match token.checked_mul(10).and_then(|tens| tens.checked_add(u32::from(digit))) {
            Some(longer) => token = longer,
            None => fits = false, // the digits that follow still have to be digits
        }
    }
    if fits { Ok(token) } else { Err(PromptError::TokenOutOfRange) }
}

fn block_hash(item: &[u8]) -> Result<u64, PromptError> {
    let digits: &[u8; HASH_DIGITS] = item.try_into().map_err(|_| PromptError::BadHeader)?;
    let (mut hash, mut are_digits) = (0, true);
    for byte in digits {
        are_digits &= byte.is_ascii_hexdigit();
        // The low four bits of '0'..'9' are the digit's value, those of 'A' and 'a' are 1.
        hash = hash << 4 | u64::from((byte & 0xf) + 9 * (byte >> 6)) & 0xf;
    }
    if are_digits { Ok(hash) } else { Err(PromptError::BadHeader) }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
    use proptest::prelude::*;

    use super::PromptError::{BadHeader, TokenOutOfRange};
    use super::*;

    #[test]
    fn a_decimal_list_may_be_written_in_many_ways() {
        for list in ["1,2,30", "1 2 30", "1, 2 30", " 1 ,\t2  30 ", "[1,2,30]", "[ 1 2, 30 ] ", "01,002,30"] {
            assert_eq!(decimal_tokens(list.as_bytes()), Ok(vec![1, 2, 30]), "{list}");
        }
        assert_eq!(decimal_tokens(b"0"), Ok(vec![0]));
        assert_eq!(decimal_tokens(b"4294967295"), Ok(vec![u32::MAX]));
    }

    #[test]
    fn an_empty_value_is_an_empty_list() {
        for list in ["", "  ", "[]", "[ ]"] {
            assert_eq!(decimal_tokens(list.as_bytes()), Ok(vec![]), "{list}");
        }
        assert_eq!(base64_tokens(b" "), Ok(vec![]));
        assert_eq!(block_hashes(b" "), Ok(vec![]));
    }

    #[test]
    fn what_is_no_decimal_list_is_refused() {
        for list in [
            "1,,2", ",1", "1,", ",", "[1", "1]", "[[1]]", "[", "]", "-1", "+1", "1.5", "1e3", "0x1", "a",
            "1;2", "\"1\"", "1\u{a0}2",
        ] {
            assert_eq!(decimal_tokens(list.as_bytes()), Err(BadHeader), "{list}");
        }
        assert_eq!(decimal_tokens(b"1,\xff"), Err(BadHeader));
        assert_eq!(decimal_tokens(b"1,4294967296"), Err(TokenOutOfRange));
        assert_eq!(decimal_tokens(&b"9".repeat(100_000)), Err(TokenOutOfRange));
        assert_eq!(decimal_tokens(b"99999999999x"), Err(BadHeader));
    }

    #[test]
    fn what_is_no_base64_of_whole_tokens_is_refused() {
        assert_eq!(base64_tokens(b"AQAAAP////8="), Ok(vec![1, u32::MAX]));
        assert_eq!(base64_tokens(b"AQAAAP////8"), Ok(vec![1, u32::MAX]));
        for list in ["AQAA", "AQAAAA=A", "AQAAAA===", "AQ AAAA", "AQAAA-", "AQAAAP____8=", "AQAAAB"] {
            assert_eq!(base64_tokens(list.as_bytes()), Err(BadHeader), "{list}");
        }
        assert_eq!(base64_tokens(b"\xff\xff\xff\xff"), Err(BadHeader));
    }

    #[test]
    fn a_block_hash_has_sixteen_digits() {
        let hashes = Ok(vec![0x0011_2233_aabb_ccdd, u64::MAX]);
        assert_eq!(block_hashes(b"00112233AABBccdd, ffffffffffffffff"), hashes);
        for list in [
            "0",
            "00112233aabbccd",
            "00112233aabbccdd0",
            "0x112233aabbccdd",
            "00112233aabbccdg",
            "[00112233aabbccdd]",
        ] {
            assert_eq!(block_hashes(list.as_bytes()), Err(BadHeader), "{list}");
        }
    }

    proptest! {
        #[test]
        fn every_list_is_read_back(
            tokens in prop::collection::vec(any::<u32>(), 0..50),
            hashes in prop::collection::vec(any::<u64>(), 0..50),
            separator in prop::sample::select(vec![",", " ", ", ", " ,\t"]),
        ) {
            let decimal = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(separator);
            prop_assert_eq!(decimal_tokens(decimal.as_bytes()), Ok(tokens.clone()));
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            prop_assert_eq!(base64_tokens(STANDARD.encode(&bytes).as_bytes()), Ok(tokens.clone()));
            prop_assert_eq!(base64_tokens(STANDARD_NO_PAD.encode(&bytes).as_bytes()), Ok(tokens));
            let hex = hashes.iter().map(|hash| format!("{hash:016x}")).collect::<Vec<_>>().join(separator);
            prop_assert_eq!(block_hashes(hex.as_bytes()), Ok(hashes));
        }

        #[test]
        fn no_value_panics(value in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = (decimal_tokens(&value), base64_tokens(&value), block_hashes(&value));
        }
    }
}
