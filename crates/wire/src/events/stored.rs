//! `BlockStored`.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny};
use warmroute_index::event::{EngineHash, Group, Stored};

use super::extra_keys::{BlockKeys, ExtraKey, MediaKeys};
use super::fields::{self, Fields, Source};
use super::values::{Hash, Names, Token};
use crate::medium;

/// Kinds of layers that keep every token of a prefix, so that a block of them can be reused wherever its prefix is.
/// Latent attention and attention sinks are full attention in another layout. A kind that is not named here is closed
/// out: it may evict what a prefix needs.
const KEEPS_EVERY_TOKEN: [&str; 3] = ["full_attention", "mla_attention", "sink_full_attention"];

/// The fields as they came.
#[derive(Debug, Default)]
pub(crate) struct RawStored {
    hashes: Option<Vec<Hash>>,
    parent: Option<Hash>,
    tokens: Vec<Token>,
    block_size: u32,
    lora_id: Option<i64>,
    lora: Option<String>,
    salt: Option<String>,
    medium: Option<String>,
    extra_keys: Vec<BlockKeys>,
    media_keys: MediaKeys,
    /// What the engine's dialect has found behind placeholder tokens, by block.
    media: Vec<Vec<u64>>,
    group: Option<u32>,
    kind: Option<String>,
}

// === impl RawStored ===

impl RawStored {
    pub(crate) fn group(&self) -> Group {
        Group(self.group.unwrap_or_default())
    }

    /// Whether the group of layers keeps every token, if the event tells.
    pub(crate) fn keeps_every_token(&self) -> Option<bool> {
        self.kind.as_deref().map(|kind| KEEPS_EVERY_TOKEN.contains(&kind))
    }

    /// Whether the tokens are exactly those of the blocks. Blocks without any tokens are placeholders of an engine that
    /// does not tell them.
    pub(crate) fn is_aligned(&self) -> bool {
        let blocks = self.hashes.as_ref().map_or(0, Vec::len);
        self.tokens.is_empty() || Some(self.tokens.len()) == blocks.checked_mul(self.block_size as usize)
    }

    /// Whether the event names the medium, as none of the early releases does.
    pub(crate) fn names_medium(&self) -> bool {
        self.medium.is_some()
    }

    /// The adapter's name.
    pub(crate) fn lora(&self) -> Option<&str> {
        self.lora.as_deref()
    }

    /// The blocks' names, each with its tokens. Empty where the tokens are not told.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (EngineHash, &[Token])> {
        let tokens = self.tokens.chunks_exact((self.block_size as usize).max(1));
        self.hashes.iter().flatten().map(|hash| hash.0).zip(tokens)
    }

    /// Changes every name, the parent's too.
    pub(crate) fn rename(&mut self, rename: impl Fn(EngineHash) -> EngineHash) {
        for hash in self.hashes.iter_mut().flatten().chain(&mut self.parent) {
            hash.0 = rename(hash.0);
        }
    }

    /// A parent called 0 is none.
    pub(crate) fn take_zero_for_no_parent(&mut self) {
        self.parent = self.parent.filter(|hash| hash.0.0 != 0);
    }

    /// Takes texts among the tokens for names of media, with a placeholder for the token.
    pub(crate) fn take_texts_for_media(&mut self) {
        let blocks = self.tokens.chunks_exact_mut((self.block_size as usize).max(1));
        let media: Vec<Vec<u64>> =
            blocks.map(|block| block.iter_mut().filter_map(Token::take_text).collect()).collect();
        if media.iter().any(|block| !block.is_empty()) {
            self.media = media;
        }
    }

    /// The event in the index's terms, or what speaks against it.
    pub(crate) fn into_event(mut self) -> Result<Stored, &'static str> {
        let parent = self.parent.map(|hash| hash.0);
        let (media, salt) = self.namespaces(parent.is_none())?;
        let tokens: Option<_> = self.tokens.iter().map(|token| token.id()).collect();
        Ok(Stored {
            lora: self.adapter(),
            group: self.group(),
            tier: medium::tier(self.medium.as_deref()),
            hashes: self.hashes.unwrap_or_default().into_iter().map(|hash| hash.0).collect(),
            parent,
            tokens: tokens.ok_or("a token is a text")?,
            block_size: self.block_size,
            media,
            salt,
        })
    }

    /// Engines before 0.14 give an adapter's number only: no request names it so, but it must not pass for the base
    /// model.
    fn adapter(&mut self) -> Option<String> {
        self.lora.take().or_else(|| self.lora_id.map(|id| format!("lora_id:{id}")))
    }

    /// The media's names by block, and the salt.
    fn namespaces(&mut self, is_root: bool) -> Result<(Vec<Vec<u64>>, Option<String>), &'static str> {
        let mut salt = self.salt.take().filter(|salt| !salt.is_empty());
        let blocks = self.hashes.as_ref().map_or(0, Vec::len);
        let mut keys = std::mem::take(&mut self.extra_keys);
        if keys.iter().all(|block| block.0.is_empty()) {
            keys.clear();
        } else if keys.len() != blocks {
            return Err("extra_keys has not one entry for each block");
        }
        let mut media = std::mem::take(&mut self.media);
        media.resize(blocks, Vec::new());
        for (i, (block, media)) in keys.into_iter().zip(&mut media).enumerate() {
            let mut block = block.0;
            self.drop_adapter(&mut block);
            if i == 0 && is_root && salt.is_none() {
                salt = take_salt(&mut block);
            }
            media.extend(block.iter().map(ExtraKey::media_name));
        }
        self.media_keys.give_to(&mut media);
        if media.iter().all(Vec::is_empty) {
            media.clear();
        }
        Ok((media, salt))
    }

    /// The adapter's name comes first in every block, and is known from its own field.
    fn drop_adapter(&self, block: &mut Vec<ExtraKey>) {
        if let (Some(ExtraKey::Text(first)), Some(lora)) = (block.first(), &self.lora)
            && first == lora
        {
            block.remove(0);
        }
    }
}

/// A bare text in a prompt's first block is the salt; where there are more (releases that name media so), it is the
/// last.
fn take_salt(block: &mut Vec<ExtraKey>) -> Option<String> {
    let at = block.iter().rposition(|key| matches!(key, ExtraKey::Text(text) if !text.is_empty()))?;
    match block.remove(at) {
        ExtraKey::Text(salt) => Some(salt),
        ExtraKey::Name(_) => None,
    }
}

impl Fields for RawStored {
    const ORDER: &'static [&'static str] = &[
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
    ];

    fn take<'de, S: Source<'de>>(&mut self, name: &str, source: &mut S) -> Result<(), S::Error> {
        match name {
            "block_hashes" => self.hashes = source.value()?,
            "parent_block_hash" => self.parent = source.value()?.flatten(),
            "token_ids" => self.tokens = source.value::<Option<_>>()?.flatten().unwrap_or_default(),
            "block_size" => self.block_size = source.value::<Option<_>>()?.flatten().unwrap_or_default(),
            "lora_id" => self.lora_id = source.value()?.flatten(),
            "medium" => self.medium = source.value()?.flatten(),
            "lora_name" => {
                let names: Names = source.value()?.unwrap_or_default();
                self.lora = names.lora.filter(|name| !name.is_empty());
                self.salt = names.salt.or(self.salt.take());
            }
            "cache_salt" => self.salt = source.value()?.flatten(),
            "mm_keys" => self.media_keys = source.value::<Option<_>>()?.flatten().unwrap_or_default(),
            "extra_keys" => self.extra_keys = source.value::<Option<_>>()?.flatten().unwrap_or_default(),
            "group_idx" => self.group = source.value()?.flatten(),
            "kv_cache_spec_kind" => self.kind = source.value()?.flatten(),
            _ => drop(source.value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for RawStored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: Self = fields::deserialize(deserializer)?;
        if raw.hashes.is_none() {
            return Err(D::Error::missing_field("block_hashes"));
        }
        Ok(raw)
    }
}
