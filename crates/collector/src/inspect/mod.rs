//! Looking into a pool: what each worker holds and how it fares, and what a prompt would find.
//!
//! These are the answers of `GET /v1/pools/{pool}/workers` and `POST /v1/pools/{pool}/explain`, as the server writes and
//! the command line reads them.

mod lookup;

use serde::{Deserialize, Serialize};
use warmroute_routing::Tier;

pub(crate) use self::lookup::depths;
pub use self::lookup::{WorkerBlocks, cached_blocks};

/// A pool and its workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolReport {
    /// The pool's name.
    pub pool: String,
    /// What its workers run.
    pub engine: String,
    /// Tokens in a block.
    pub block_size: u32,
    /// Whether its feed answers.
    pub ready: bool,
    /// Published blocks.
    pub blocks: u64,
    /// Pairs of worker and block that are held with an ancestor missing.
    pub unpublished: u64,
    /// Blocks that wait for their parents.
    pub orphans: u64,
    /// Engines' names for blocks.
    pub names: u64,
    /// Pages of the index.
    pub pages: u32,
    /// The memory that the index takes, in bytes: an estimate from the sizes of its tables.
    pub memory_bytes: u64,
    /// The same for each block that is in memory, held or only on the way to one that is; null where there is none.
    pub memory_bytes_per_block: Option<u64>,
    /// Where the tokens of text and chat prompts come from; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<PromptsReport>,
    /// Its ranks, in the order in which they came.
    pub workers: Vec<WorkerReport>,
}

/// Where a pool's tokens come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptsReport {
    /// `local` (the model's files), `engine`, `loading` or `failed`.
    pub source: String,
    /// Why the model's files cannot be used.
    pub error: Option<String>,
    /// How the files' tokens differ from the engine's.
    pub differs: Option<String>,
}

/// One rank of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its endpoint.
    pub worker: String,
    /// Its data-parallel rank.
    pub rank: u16,
    /// `up` or `down`, as it is published.
    pub state: String,
    /// Whether the connection to its events stands; null before the first.
    pub connected: Option<bool>,
    /// Whether it answers its health checks; null where that is not known.
    pub healthy: Option<bool>,
    /// Why nothing of it is indexed.
    pub refused: Option<String>,
    /// Published blocks by tier: that in which a walk from the first block finds them.
    pub blocks: ByTier,
    /// Blocks that it holds and that are not published: an ancestor is missing.
    pub unpublished: u64,
    /// Blocks that wait for their parents.
    pub orphans: u64,
    /// The engine's names for blocks, in each group of layers that it tells of.
    pub groups: Vec<GroupReport>,
    /// The number of the last batch that is in the index; null where there is none.
    pub last_batch: Option<u64>,
    /// What has been received of it.
    pub received: Received,
}

/// A group of layers of one rank, as hybrid models have several.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The engine's number for it.
    pub group: u32,
    /// Names with a copy in each tier. One with copies in two tiers counts in both.
    pub names: ByTier,
}

/// What has been received of a rank since the collector started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Messages.
    pub frames: u64,
    /// Messages that are no batch.
    pub undecodable_frames: u64,
    /// Gaps that a replay closed.
    pub gaps_recovered: u64,
    /// Gaps whose batches are lost.
    pub gaps_unrecovered: u64,
    /// Replays that brought all that was asked for.
    pub replays_complete: u64,
    /// Replays that began late or had holes.
    pub replays_partial: u64,
    /// Replays that did not end.
    pub replays_failed: u64,
    /// Seconds since the last message; null before the first.
    pub last_event_age_seconds: Option<f64>,
}

/// Blocks in each tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByTier {
    /// In the accelerator's memory.
    pub gpu: u64,
    /// In the host's memory.
    pub cpu: u64,
    /// On a disk.
    pub disk: u64,
    /// Elsewhere.
    pub external: u64,
}

/// A prompt, and the names that make its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The prompt's tokens.
    pub tokens: Vec<u32>,
    /// The LoRA adapter's name; absent for the base model.
    #[serde(default)]
    pub lora: Option<String>,
    /// The cache salt.
    #[serde(default)]
    pub salt: Option<String>,
}

/// What each worker has of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The pool's name.
    pub pool: String,
    /// Tokens in a block.
    pub block_size: u32,
    /// The prompt's tokens.
    pub tokens: u64,
    /// The prompt's full blocks.
    pub blocks: u64,
    /// Every rank, the cheapest first.
    pub workers: Vec<WorkerExplanation>,
}

/// What one rank has of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerExplanation {
    /// Its endpoint.
    pub worker: String,
    /// Its data-parallel rank.
    pub rank: u32,
    /// `up` or `down`.
    pub state: String,
    /// Blocks from the prompt's start that are in each tier or a faster one.
    pub cached_blocks: ByTier,
    /// The cost: tokens that the worker would have to compute. The last one always is.
    pub uncached_tokens: u64,
}

// === impl ByTier ===

impl ByTier {
    /// The count of a tier.
    pub fn of(&mut self, tier: Tier) -> &mut u64 {
        match tier {
            Tier::Gpu => &mut self.gpu,
            Tier::Cpu => &mut self.cpu,
            Tier::Disk => &mut self.disk,
            Tier::External => &mut self.external,
        }
    }

    /// Adds another count.
    pub fn add(&mut self, other: &Self) {
        self.gpu += other.gpu;
        self.cpu += other.cpu;
        self.disk += other.disk;
        self.external += other.external;
    }
}

// === impl Explanation ===

impl Explanation {
    /// Tokens that a worker with so many cached blocks has to compute. The engine computes the last token in any case, and
    /// with it its block.
    pub(crate) fn uncached_tokens(tokens: u64, block_size: u32, cached_blocks: u64) -> u64 {
        let block_size = u64::from(block_size.max(1));
        let usable = tokens.saturating_sub(1) / block_size;
        tokens - cached_blocks.min(usable) * block_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_token_is_always_computed() {
        let cost = |tokens, cached| Explanation::uncached_tokens(tokens, 16, cached);
        assert_eq!((cost(0, 0), cost(16, 1), cost(17, 1), cost(40, 1), cost(40, 9)), (0, 16, 1, 24, 8));
    }
}
