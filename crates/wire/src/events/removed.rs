//! `BlockRemoved`.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny};
use warmroute_index::event::{Group, Removed};

use super::fields::{self, Fields, Source};
use super::values::Hash;
use crate::medium;

/// The fields as they came.
#[derive(Debug, Default)]
pub(crate) struct RawRemoved {
    hashes: Option<Vec<Hash>>,
    left: Vec<u32>,
    medium: Option<String>,
    group: Option<u32>,
}

// === impl RawRemoved ===

impl RawRemoved {
    /// The event in the index's terms.
    pub(crate) fn into_event(self) -> Removed {
        let hashes: Vec<_> = self.hashes.unwrap_or_default().into_iter().map(|hash| hash.0).collect();
        // Numbers that belong to nobody say nothing; the removal is counted as ever.
        let left = if self.left.len() == hashes.len() { self.left } else { Vec::new() };
        Removed {
            hashes,
            left,
            tier: medium::tier(self.medium.as_deref()),
            group: Group(self.group.unwrap_or_default()),
        }
    }
}

impl Fields for RawRemoved {
    const ORDER: &'static [&'static str] = &["block_hashes", "medium", "group_idx"];

    fn take<'de, S: Source<'de>>(&mut self, name: &str, source: &mut S) -> Result<(), S::Error> {
        match name {
            "block_hashes" => self.hashes = source.value()?,
            "medium" => self.medium = source.value()?.flatten(),
            "group_idx" => self.group = source.value()?.flatten(),
            // Proposed for vLLM (#48933): in maps only, since releases with arrays are past.
            "remaining_copy_counts" => self.left = source.value::<Option<_>>()?.flatten().unwrap_or_default(),
            _ => drop(source.value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for RawRemoved {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: Self = fields::deserialize(deserializer)?;
        if raw.hashes.is_none() {
            return Err(D::Error::missing_field("block_hashes"));
        }
        Ok(raw)
    }
}
