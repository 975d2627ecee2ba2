//! llm-d-inference-sim: vLLM's events, but for a first block's parent, which is 0 and not nil in arrays.

use warmroute_index::event::{Removed, Stored};

use super::events::{self, NotIndexed, RawRemoved, RawStored};
use super::vllm;

/// What one simulated engine has said.
#[derive(Clone, Debug, Default)]
pub(super) struct Dialect(vllm::Dialect);

// === impl Dialect ===

impl events::Dialect for Dialect {
    fn stored(&mut self, mut raw: RawStored) -> Result<Stored, NotIndexed> {
        raw.take_zero_for_no_parent();
        self.0.stored(raw)
    }

    fn removed(&mut self, raw: RawRemoved) -> Result<Removed, NotIndexed> {
        self.0.removed(raw)
    }
}

#[cfg(test)]
mod tests;
