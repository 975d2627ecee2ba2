//! `extra_keys`: what besides its tokens makes a block, as vLLM hashes it.
//!
//! For each block a list, or nil: the adapter's name, media as `[name, offset]` pairs (bare names before 0.19), the
//! cache salt in a prompt's first block, digests of embedded prompts as bytes. Texts are told apart by their place only.
//! Whatever is none of these still goes into the block's name: equal tokens with something unknown must not pass for
//! plain ones.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// One block's keys.
#[derive(Debug, Default)]
pub(super) struct BlockKeys(pub(super) Vec<ExtraKey>);

/// One of a block's keys.
#[derive(Debug)]
pub(super) enum ExtraKey {
    /// A bare text: an adapter, a salt, or a medium in old releases.
    Text(String),
    /// Anything else, by its 64-bit name.
    Name(u64),
}

/// `mm_keys` (TensorRT-LLM): names of media, for each block or for all of them; none where nothing is named.
#[derive(Debug, Default)]
pub(super) struct MediaKeys(Vec<Option<u64>>);

// === impl BlockKeys ===

impl<'de> Deserialize<'de> for BlockKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<Vec<ExtraKey>>::deserialize(deserializer).map(|keys| Self(keys.unwrap_or_default()))
    }
}

// === impl MediaKeys ===

impl MediaKeys {
    /// Gives each block its media. Keys that are not one for each block count for every block.
    pub(super) fn give_to(&self, media: &mut [Vec<u64>]) {
        if self.0.len() == media.len() {
            media.iter_mut().zip(&self.0).for_each(|(block, key)| block.extend(*key));
        } else {
            media.iter_mut().for_each(|block| block.extend(self.0.iter().flatten()));
        }
    }
}

impl<'de> Deserialize<'de> for MediaKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = Option::<Vec<Value>>::deserialize(deserializer)?.unwrap_or_default();
        Ok(Self(keys.iter().map(|key| (!key.is_nothing()).then(|| key.fingerprint())).collect()))
    }
}

// === impl ExtraKey ===

impl ExtraKey {
    /// The name of a medium or of whatever else the key is.
    pub(super) fn media_name(&self) -> u64 {
        match self {
            Self::Text(text) => xxh3_64(text.as_bytes()),
            Self::Name(name) => *name,
        }
    }
}

impl<'de> Deserialize<'de> for ExtraKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::Text(text) => Self::Text(text),
            Value::Bytes(digest) => Self::Name(xxh3_64(&digest)),
            Value::List(items) => Self::Name(name_of_list(items)),
            other => Self::Name(other.fingerprint()),
        })
    }
}

/// A medium is named by its identifier: where its tokens begin follows from the tokens.
fn name_of_list(items: Vec<Value>) -> u64 {
    match &*items {
        [Value::Text(id), Value::Number(_)] => xxh3_64(id.as_bytes()),
        [Value::Bytes(id), Value::Number(_)] => xxh3_64(id),
        _ => Value::List(items).fingerprint(),
    }
}

/// Any value of the wire.
#[derive(Debug)]
enum Value {
    Nothing,
    Text(String),
    Bytes(Vec<u8>),
    /// Its kind and its bits.
    Number((char, u64)),
    List(Vec<Value>),
}

// === impl Value ===

impl Value {
    fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::List(items) => items.is_empty(),
            _ => false,
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = Xxh3::new();
        self.feed(&mut hasher);
        hasher.digest()
    }

    /// Kinds and lengths go in too, so that no two values feed the same bytes.
    fn feed(&self, hasher: &mut Xxh3) {
        let mut tagged = |tag: char, len: usize, bytes: &[u8]| {
            hasher.update(&[tag as u8]);
            hasher.update(&(len as u64).to_le_bytes());
            hasher.update(bytes);
        };
        match self {
            Self::Nothing => tagged('n', 0, &[]),
            Self::Text(text) => tagged('t', text.len(), text.as_bytes()),
            Self::Bytes(bytes) => tagged('b', bytes.len(), bytes),
            Self::Number((kind, bits)) => tagged(*kind, 8, &bits.to_le_bytes()),
            Self::List(items) => {
                tagged('l', items.len(), &[]);
                items.iter().for_each(|item| item.feed(hasher));
            }
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

// === impl ValueVisitor ===

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Number(('?', u64::from(value))))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(('u', value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(('i', value as u64)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(('f', value.to_bits())))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(Value::Bytes(bytes.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some((key, value)) = map.next_entry()? {
            items.extend([key, value]);
        }
        Ok(Value::List(items))
    }
}
