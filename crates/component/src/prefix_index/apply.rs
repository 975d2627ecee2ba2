//! Events in the contract's shapes.

use warmroute_index::event::{EngineHash, Event, Group, Removed, Stored, StoredLocals};
use warmroute_index::{Applied, EventError, WorkerId};
use warmroute_routing::hash::LocalHash;

use super::State;
use crate::bindings::exports::warmroute::routing::prefix_index as wit;
use crate::{convert, tokens};

impl State {
    pub(crate) fn apply(
        &mut self,
        worker: wit::Worker,
        events: Vec<wit::Event>,
        now_ms: u64,
    ) -> wit::Outcome {
        self.heard(now_ms);
        let id = self.ids.get(&(worker.id, worker.rank)).copied();
        let mut sum = Applied::default();
        let mut failed = Vec::new();
        for (place, event) in (0..).zip(events) {
            let applied = match id {
                Some(id) => self.apply_one(id, event),
                None => Err(wit::EventError::UnknownWorker),
            };
            match applied {
                Ok(applied) => add(&mut sum, applied),
                Err(error) => failed.push((place, error)),
            }
        }
        self.tidy();
        wit::Outcome { applied: applied_out(sum), failed }
    }

    fn apply_one(&mut self, id: WorkerId, event: wit::Event) -> Result<Applied, wit::EventError> {
        let applied = match event {
            wit::Event::Cleared => self.index.apply(id, &Event::Cleared),
            wit::Event::Removed(removed) => {
                let removed = Removed {
                    hashes: engine_hashes(removed.hashes),
                    left: removed.left,
                    tier: convert::tier(removed.tier),
                    group: Group(removed.group),
                };
                self.index.apply(id, &Event::Removed(removed))
            }
            wit::Event::Stored(stored) => self.store(id, stored)?,
        };
        applied.map_err(|error| match error {
            EventError::UnknownWorker => wit::EventError::UnknownWorker,
            EventError::BlockSize { actual, .. } => wit::EventError::BlockSize(actual),
            EventError::Misaligned { .. }
            | EventError::Media { .. }
            | EventError::Locals { .. }
            | EventError::Left { .. } => wit::EventError::Misaligned,
        })
    }

    fn store(
        &mut self,
        id: WorkerId,
        stored: wit::Stored,
    ) -> Result<Result<Applied, EventError>, wit::EventError> {
        let wit::Stored { hashes, parent, content, lora, salt, tier, group } = stored;
        let (hashes, parent) = (engine_hashes(hashes), parent.map(EngineHash));
        let (tier, group) = (convert::tier(tier), Group(group));
        let (tokens, block_size, media) = match content {
            wit::Content::Blocks(locals) => {
                let locals = locals.into_iter().map(LocalHash).collect();
                let stored = StoredLocals { hashes, parent, locals, lora, salt, tier, group };
                return Ok(self.index.apply_locals(id, &stored));
            }
            wit::Content::Tokens((tokens, block_size)) => (ids(tokens)?, block_size, Vec::new()),
            wit::Content::Media((tokens, block_size, media)) => (ids(tokens)?, block_size, media),
            wit::Content::Unknown => (Vec::new(), self.index.block_size(), Vec::new()),
        };
        let stored = Stored { hashes, parent, tokens, block_size, media, lora, salt, tier, group };
        Ok(self.index.apply(id, &Event::Stored(stored)))
    }
}

fn engine_hashes(hashes: Vec<u64>) -> Vec<EngineHash> {
    hashes.into_iter().map(EngineHash).collect()
}

fn ids(tokens: wit::Tokens) -> Result<Vec<u32>, wit::EventError> {
    tokens::ids(tokens).map_err(wit::EventError::Tokens)
}

fn add(sum: &mut Applied, more: Applied) {
    let pairs = [
        (&mut sum.stored, more.stored),
        (&mut sum.removed, more.removed),
        (&mut sum.orphaned, more.orphaned),
        (&mut sum.attached, more.attached),
        (&mut sum.dropped_orphans, more.dropped_orphans),
        (&mut sum.renamed, more.renamed),
        (&mut sum.unknown_removed, more.unknown_removed),
        (&mut sum.skipped, more.skipped),
        (&mut sum.cleared, more.cleared),
    ];
    for (sum, more) in pairs {
        *sum = sum.saturating_add(more);
    }
}

fn applied_out(applied: Applied) -> wit::Applied {
    wit::Applied {
        stored: applied.stored,
        removed: applied.removed,
        orphaned: applied.orphaned,
        attached: applied.attached,
        dropped_orphans: applied.dropped_orphans,
        renamed: applied.renamed,
        unknown_removed: applied.unknown_removed,
        skipped: applied.skipped,
        cleared: applied.cleared,
    }
}
