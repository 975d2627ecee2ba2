//! The types of single values: block hashes, tokens, names.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use warmroute_index::event::EngineHash;
use xxhash_rust::xxh3::xxh3_64;

/// A block's hash: unsigned (vLLM), signed (SGLang) or a digest's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(pub(super) EngineHash);

/// What stands in a token's place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Token {
    /// A token.
    Id(u32),
    /// A token and its successor (SGLang under EAGLE), of which the first counts.
    Pair(u32, u32),
    /// A text (TensorRT-LLM's digest of a medium), by its 64-bit name.
    Text(u64),
}

/// What stands in the place of the adapter's name: it, or (SGLang 0.5.18 and 0.5.19, arrays) a map with the salt.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) lora: Option<String>,
    pub(super) salt: Option<String>,
}

struct HashVisitor;
struct TokenVisitor;
struct NamesVisitor;

// === impl Hash ===

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HashVisitor)
    }
}

impl<'de> Visitor<'de> for HashVisitor {
    type Value = Hash;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block hash: a 64-bit integer or bytes")
    }

    fn visit_u64<E: Error>(self, hash: u64) -> Result<Hash, E> {
        Ok(Hash(EngineHash(hash)))
    }

    fn visit_i64<E: Error>(self, hash: i64) -> Result<Hash, E> {
        Ok(Hash(EngineHash(hash as u64)))
    }

    /// The last 8 bytes, big-endian: what vLLM makes of the same digest where it sends integers.
    fn visit_bytes<E: Error>(self, digest: &[u8]) -> Result<Hash, E> {
        if digest.is_empty() {
            return Err(E::invalid_length(0, &self));
        }
        let last = digest.iter().skip(digest.len().saturating_sub(8));
        Ok(Hash(EngineHash(last.fold(0, |hash, byte| hash << 8 | u64::from(*byte)))))
    }
}

// === impl Token ===

impl Token {
    /// The token's number; none for a text.
    pub(crate) fn id(self) -> Option<u32> {
        match self {
            Self::Id(token) | Self::Pair(token, _) => Some(token),
            Self::Text(_) => None,
        }
    }

    /// Puts a placeholder in a text's place; the text's name.
    pub(super) fn take_text(&mut self) -> Option<u64> {
        let Self::Text(name) = *self else { return None };
        *self = Self::Id(0);
        Some(name)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TokenVisitor)
    }
}

impl<'de> Visitor<'de> for TokenVisitor {
    type Value = Token;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token: a 32-bit integer, a pair or a text")
    }

    fn visit_u64<E: Error>(self, token: u64) -> Result<Token, E> {
        u32::try_from(token).map(Token::Id).map_err(|_| E::invalid_value(Unexpected::Unsigned(token), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Token, E> {
        Ok(Token::Text(xxh3_64(text.as_bytes())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Token, A::Error> {
        let first = seq.next_element::<u32>()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let Some(second) = seq.next_element::<u32>()? else { return Ok(Token::Id(first)) };
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Token::Pair(first, second))
    }
}

// === impl Names ===

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamesVisitor)
    }
}

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an adapter's name")
    }

    fn visit_unit<E: Error>(self) -> Result<Names, E> {
        Ok(Names::default())
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Names, E> {
        Ok(Names { lora: Some(name.to_owned()), salt: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
        let mut names = Names::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "cache_salt" => names.salt = map.next_value()?,
                "lora_name" => names.lora = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(names)
    }
}
