//! `BlockStored`.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny};
use warmroute_index::event::{EngineHash, Group, Stored};

use super::extra_keys::{BlockKeys, ExtraKey};
use super::fields::{self, Fields, Source};
use super::values::{Hash, Names, Token};
use crate::wire::medium;

/// Kinds of layers that keep every token of a prefix, so that a block of them can be reused wherever its prefix is.
/// Latent attention and attention sinks are full attention in another layout. A kind that is not named here is closed
/// out: it may evict what a prefix needs.
const KEEPS_EVERY_TOKEN: [&str; 3] = ["full_attention", "mla_attention", "sink_full_attention"];

/// The fields as they came.
#[derive(Debug, Default)]
pub(super) struct RawStored {
    hashes: Option<Vec<Hash>>,
    parent: Option<Hash>,
    tokens: Vec<Token>,
    block_size: u32,
    lora_id: Option<i64>,
    lora: Option<String>,
    salt: Option<String>,
    medium: Option<String>,
    extra_keys: Vec<BlockKeys>,
    group: Option<u32>,
    kind: Option<String>,
}

// === impl RawStored ===

impl RawStored {
    pub(super) fn group(&self) -> Group {
        Group(self.group.unwrap_or_default())
    }

    /// Whether the group of layers keeps every token, if the event tells.
    pub(super) fn keeps_every_token(&self) -> Option<bool> {
        self.kind.as_deref().map(|kind| KEEPS_EVERY_TOKEN.contains(&kind))
    }

    /// Whether the tokens are exactly those of the blocks. Blocks without any tokens are placeholders of an engine that
    /// does not tell them.
    pub(super) fn is_aligned(&self) -> bool {
        let blocks = self.hashes.as_ref().map_or(0, Vec::len);
        self.tokens.is_empty() || Some(self.tokens.len()) == blocks.checked_mul(self.block_size as usize)
    }

    /// The event in the index's terms, or what speaks against it.
    pub(super) fn into_event(mut self) -> Result<Stored, &'static str> {
        let parent = self.parent();
        let (media, salt) = self.namespaces(parent.is_none())?;
        Ok(Stored {
            lora: self.adapter(),
            group: self.group(),
            tier: medium::tier(self.medium.as_deref()),
            hashes: self.hashes.unwrap_or_default().into_iter().map(|hash| hash.0).collect(),
            parent,
            tokens: self.tokens.into_iter().map(|token| token.0).collect(),
            block_size: self.block_size,
            media,
            salt,
        })
    }

    /// llm-d's simulator writes 0 where a prompt's first block has no parent.
    fn parent(&self) -> Option<EngineHash> {
        self.parent.map(|hash| hash.0).filter(|hash| hash.0 != 0)
    }

    /// Engines before 0.14 give an adapter's number only: no request names it so, but it must not pass for the base
    /// model.
    fn adapter(&mut self) -> Option<String> {
        self.lora.take().or_else(|| self.lora_id.map(|id| format!("lora_id:{id}")))
    }

    /// The media's names by block, and the salt.
    fn namespaces(&mut self, is_root: bool) -> Result<(Vec<Vec<u64>>, Option<String>), &'static str> {
        let mut salt = self.salt.take().filter(|salt| !salt.is_empty());
        let keys = std::mem::take(&mut self.extra_keys);
        if keys.iter().all(|block| block.0.is_empty()) {
            return Ok((Vec::new(), salt));
        }
        if Some(keys.len()) != self.hashes.as_ref().map(Vec::len) {
            return Err("extra_keys has not one entry for each block");
        }
        let mut media = Vec::with_capacity(keys.len());
        for (i, block) in keys.into_iter().enumerate() {
            let mut block = block.0;
            self.drop_adapter(&mut block);
            if i == 0 && is_root && salt.is_none() {
                salt = take_salt(&mut block);
            }
            media.push(block.iter().map(ExtraKey::media_name).collect());
        }
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
