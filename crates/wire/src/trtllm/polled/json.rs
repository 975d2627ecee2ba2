//! The events' JSON. Fields that are not named here are stepped over.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::Value;
use warmroute_index::event::EngineHash;
use warmroute_routing::Tier;
use xxhash_rust::xxh3::xxh3_64;

/// An event.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) data: Data,
    #[serde(default)]
    pub(super) window_size: Option<u64>,
}

/// What has happened.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Data {
    /// The cache has been made.
    Created,
    Stored {
        #[serde(default)]
        parent_hash: Option<Hash>,
        blocks: Vec<Block>,
    },
    Removed {
        block_hashes: Vec<Hash>,
    },
    Updated {
        block_hash: Hash,
        /// None where only its priority has changed.
        #[serde(default)]
        cache_level: Option<Level>,
    },
    #[serde(other)]
    Unknown,
}

/// A change of tier.
#[derive(Debug, Deserialize)]
pub(super) struct Level {
    pub(super) new_value: u32,
}

/// A stored block.
#[derive(Debug, Deserialize)]
pub(super) struct Block {
    block_hash: Hash,
    tokens: Vec<Token>,
    #[serde(default)]
    cache_level: u32,
    #[serde(default)]
    mm_keys: Option<Vec<Value>>,
    #[serde(default)]
    cache_salt: Option<Value>,
    #[serde(default)]
    lora_name: Option<String>,
    #[serde(default)]
    lora_id: Option<Value>,
}

/// A token. One with an extra ID stands for something that its number does not tell.
#[derive(Debug, Deserialize)]
struct Token {
    token_id: u32,
    #[serde(default)]
    token_extra_id: Option<u64>,
}

/// A block's hash: 64 bits, or a digest in hexadecimal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(pub(super) EngineHash);

/// The tier of a cache level.
pub(super) fn tier(level: u32) -> Tier {
    match level {
        0 => Tier::Gpu,
        1 => Tier::Cpu,
        2 => Tier::Disk,
        _ => Tier::External,
    }
}

// === impl Block ===

impl Block {
    pub(super) fn name(&self) -> EngineHash {
        self.block_hash.0
    }

    /// How many tokens it has.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u32> {
        self.tokens.iter().map(|token| token.token_id)
    }

    pub(super) fn tier(&self) -> Tier {
        tier(self.cache_level)
    }

    /// Names of the media behind its tokens.
    pub(super) fn media(&self) -> Vec<u64> {
        let keys = self.mm_keys.iter().flatten().map(|key| xxh3_64(key.to_string().as_bytes()));
        let extra = self.tokens.iter().filter_map(|token| token.token_extra_id.filter(|id| *id != 0));
        keys.chain(extra).collect()
    }

    /// The adapter's name. Where only its number is told, no request names it so, but it must not pass for the base model.
    pub(super) fn adapter(&self) -> Option<String> {
        let name = self.lora_name.clone().filter(|name| !name.is_empty());
        name.or_else(|| told(self.lora_id.as_ref()).map(|id| format!("lora_id:{id}")))
    }

    pub(super) fn salt(&self) -> Option<String> {
        match &self.cache_salt {
            Some(Value::String(salt)) => Some(salt.clone()).filter(|salt| !salt.is_empty()),
            other => told(other.as_ref()).map(|salt| format!("cache_salt:{salt}")),
        }
    }
}

fn told(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

// === impl Hash ===

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HashVisitor;

        impl Visitor<'_> for HashVisitor {
            type Value = Hash;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a block hash: a 64-bit integer or hexadecimal digits")
            }

            fn visit_u64<E: Error>(self, hash: u64) -> Result<Hash, E> {
                Ok(Hash(EngineHash(hash)))
            }

            fn visit_i64<E: Error>(self, hash: i64) -> Result<Hash, E> {
                Ok(Hash(EngineHash(hash as u64)))
            }

            /// The last 16 digits: a digest's are as good as any others.
            fn visit_str<E: Error>(self, digits: &str) -> Result<Hash, E> {
                let wrong = || E::invalid_value(serde::de::Unexpected::Str(digits), &self);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(wrong());
                }
                let last = digits.get(digits.len().saturating_sub(16)..).unwrap_or(digits);
                u64::from_str_radix(last, 16).map(|hash| Hash(EngineHash(hash))).map_err(|_| wrong())
            }
        }

        deserializer.deserialize_any(HashVisitor)
    }
}
