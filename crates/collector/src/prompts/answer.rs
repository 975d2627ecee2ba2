//! Blocks, and where their tokens came from.

use serde::{Deserialize, Serialize};
use warmroute_prompts::Prompt;
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::prompt_blocks::{Extent, PromptBlocks};

/// Where tokens came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The model's files.
    Local,
    /// An engine.
    Engine,
}

/// A prompt's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The blocks, with their tokens.
    pub blocks: PromptBlocks,
    /// Where the tokens came from.
    pub source: Source,
}

/// An answer for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Where the tokens came from.
    pub source: Source,
    /// Whether these are all tokens; else an image, audio or an unknown part follows.
    pub whole: bool,
    /// Tokens in a block.
    pub block_size: u32,
    /// How many tokens there are.
    pub tokens: u32,
    /// The blocks' sequence hashes, in hexadecimal.
    pub blocks: Vec<String>,
    /// The token IDs, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

// === impl Answer ===

impl Answer {
    pub(super) fn new(prompt: Prompt, block_size: u32, namespace: Namespace, source: Source) -> Self {
        let Prompt { mut tokens, is_whole } = prompt;
        // More than any engine takes; the format has 32 bits for it.
        tokens.truncate(u32::MAX as usize);
        let blocks = PromptBlocks {
            extent: if is_whole { Extent::Whole } else { Extent::Prefix },
            block_size,
            token_count: tokens.len() as u32,
            hashes: sequence_hashes(&tokens, block_size, namespace),
            tokens: Some(tokens),
        };
        Self { blocks, source }
    }

    /// For people.
    pub fn shown(&self) -> Shown {
        let PromptBlocks { extent, block_size, token_count, hashes, tokens } = &self.blocks;
        Shown {
            source: self.source,
            whole: *extent == Extent::Whole,
            block_size: *block_size,
            tokens: *token_count,
            blocks: hashes.iter().map(|hash| format!("{:016x}", hash.0)).collect(),
            token_ids: tokens.clone(),
        }
    }
}
