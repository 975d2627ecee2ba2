//! vLLM, 0.9 to 0.33, and engines that speak exactly as it does (`dynamo.mocker`).
//!
//! Hybrid models store each block once per group of layers. Only groups that keep every token of a prefix count; the
//! kind of a group is told by its stores, not by its removals.

use std::collections::HashMap;

use warmroute_index::event::{Group, Removed, Stored};

use super::batch::Skipped;
use super::events::{self, NotIndexed, RawRemoved, RawStored};

/// What one rank of vLLM has said.
#[derive(Clone, Debug, Default)]
pub(super) struct Dialect {
    /// Whether each group that has told its kind keeps every token. Removals do not tell it.
    groups: HashMap<Group, bool>,
}

// === impl Dialect ===

impl Dialect {
    fn is_indexed(&self, group: Group) -> Result<(), NotIndexed> {
        match self.groups.get(&group) {
            Some(false) => Err(NotIndexed::Skipped(Skipped::OtherAttention)),
            Some(true) | None => Ok(()),
        }
    }
}

impl events::Dialect for Dialect {
    fn stored(&mut self, raw: RawStored) -> Result<Stored, NotIndexed> {
        if let Some(keeps_all) = raw.keeps_every_token() {
            self.groups.insert(raw.group(), keeps_all);
        }
        self.is_indexed(raw.group())?;
        if !raw.is_aligned() {
            return Err(NotIndexed::Skipped(Skipped::Misaligned));
        }
        raw.into_event().map_err(NotIndexed::Bad)
    }

    fn removed(&mut self, raw: RawRemoved) -> Result<Removed, NotIndexed> {
        let removed = raw.into_event();
        self.is_indexed(removed.group)?;
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
