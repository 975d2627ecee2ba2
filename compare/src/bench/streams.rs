//! What a fleet tells while it works: the streams of events that are applied.

use crate::blocks::Chain;
use crate::engine::{Names, Rank, Told, removed, stored};

/// Blocks that the prompts of a group share: a system prompt with its tools.
const SHARED: usize = 96;
/// Blocks of a prompt.
const PROMPT: usize = 160;
/// System prompts in use.
const GROUPS: u64 = 16;
/// Blocks that one event evicts.
const EVICTED: usize = 16;

/// Events, each with who tells it.
pub type Stream = Vec<(Rank, Told)>;

/// A fleet.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// Workers.
    pub workers: u32,
    /// Prompts that each of them holds.
    pub prompts: u64,
}

// === impl Fleet ===

impl Fleet {
    /// The fleet's ranks.
    pub fn ranks(self) -> impl Iterator<Item = Rank> + Clone {
        (0..self.workers).map(|engine| Rank { engine, rank: 0 })
    }

    /// The prompt that a worker gets as its `number`th.
    pub fn prompt(self, rank: Rank, number: u64) -> Chain {
        let group = (number + u64::from(rank.engine)) % GROUPS;
        Chain::drawn(group, PROMPT).forked(SHARED, 1 << 32 | u64::from(rank.engine) << 16 | number, PROMPT)
    }

    /// Every worker computes its prompts: what it does not have of each, `blocks_an_event` blocks an event.
    pub fn stores(self, numbers: std::ops::Range<u64>, blocks_an_event: usize) -> Stream {
        let mut stream = Vec::new();
        for number in numbers {
            for rank in self.ranks() {
                let prompt = self.prompt(rank, number);
                let start = if number < GROUPS { 0 } else { SHARED };
                for from in (start..PROMPT).step_by(blocks_an_event) {
                    let part = from..PROMPT.min(from + blocks_an_event);
                    stream.push((rank, stored(&prompt, part, Names::Shared, rank)));
                }
            }
        }
        stream
    }

    /// Every worker drops what its prompts do not share, deepest block first.
    pub fn evictions(self, numbers: std::ops::Range<u64>) -> Stream {
        let mut stream = Vec::new();
        for number in numbers {
            for rank in self.ranks() {
                let prompt = self.prompt(rank, number);
                for end in (SHARED + EVICTED..=PROMPT).rev().step_by(EVICTED) {
                    stream.push((rank, removed(&prompt, end - EVICTED..end, Names::Shared, rank)));
                }
            }
        }
        stream
    }

    /// Full caches at work: each new prompt takes the place of the oldest one.
    pub fn churn(self, rounds: u64) -> Stream {
        let numbers = self.prompts..self.prompts + rounds;
        numbers
            .flat_map(|new| {
                [self.evictions(new - self.prompts..new - self.prompts + 1), self.stores(new..new + 1, 32)]
            })
            .flatten()
            .collect()
    }
}

/// How many blocks a stream's events name.
pub fn blocks(stream: &Stream) -> u64 {
    let named = |told: &Told| match told {
        Told::Stored { blocks, .. } => blocks.len(),
        Told::Removed(names) => names.len(),
        Told::Cleared => 0,
    };
    stream.iter().map(|(_, told)| named(told) as u64).sum()
}
