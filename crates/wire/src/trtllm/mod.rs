//! TensorRT-LLM: its own publisher (the PyTorch backend's `kv_events_config`) here, its events as they are polled in
//! [`polled`].
//!
//! The publisher tells neither an adapter nor a salt. Where a medium stands behind a token, the medium's digest, a text, is in the
//! token's place.

pub mod polled;

use warmroute_index::event::{Removed, Stored};

use super::batch::Skipped;
use super::events::{self, NotIndexed, RawRemoved, RawStored};

/// TensorRT-LLM says nothing that has to be remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect;

// === impl Dialect ===

impl events::Dialect for Dialect {
    fn stored(&mut self, mut raw: RawStored) -> Result<Stored, NotIndexed> {
        if !raw.is_aligned() {
            return Err(NotIndexed::Skipped(Skipped::Misaligned));
        }
        raw.take_texts_for_media();
        raw.into_event().map_err(NotIndexed::Bad)
    }

    fn removed(&mut self, raw: RawRemoved) -> Result<Removed, NotIndexed> {
        Ok(raw.into_event())
    }
}

#[cfg(test)]
mod tests;
