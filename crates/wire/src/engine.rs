//! The engines whose events are understood.

use std::fmt;
use std::str::FromStr;

/// An engine, by the meaning of its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// vLLM 0.9 to 0.33, and whatever speaks its format.
    #[default]
    Vllm,
    /// SGLang from 0.5.6 on.
    Sglang,
    /// TensorRT-LLM's own publisher.
    TrtLlm,
    /// llm-d-inference-sim.
    LlmdSim,
}

/// A name that is no engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write `vllm`, `sglang`, `trtllm` or `llmd-sim`")]
pub struct UnknownEngine;

// === impl Engine ===

impl Engine {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Vllm, Self::Sglang, Self::TrtLlm, Self::LlmdSim];

    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TrtLlm => "trtllm",
            Self::LlmdSim => "llmd-sim",
        }
    }

    /// The number of its first batch.
    pub fn first_seq(self) -> u64 {
        match self {
            Self::Vllm | Self::Sglang | Self::TrtLlm => 0,
            Self::LlmdSim => 1,
        }
    }

    /// Whether it tells, over HTTP, where it publishes its events.
    pub fn can_be_asked(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang)
    }

    /// Whether a removal tells which adapter's block it removes. Where it does not, the adapters that have been seen are
    /// part of what is known.
    pub fn removals_tell_adapters(self) -> bool {
        self != Self::Sglang
    }

    /// Whether a block's name says what comes before it. Then one name that stands for two blocks is a sign of a
    /// release that is not understood.
    pub fn names_are_chained(self) -> bool {
        self == Self::Sglang
    }
}

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        Self::ALL.into_iter().find(|engine| engine.as_str() == name).ok_or(UnknownEngine)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
