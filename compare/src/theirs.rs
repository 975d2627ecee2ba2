//! Their side: `dynamo-kv-router`.

use std::collections::BTreeMap;

use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
};
use warmroute_routing::hash::LocalHash;

use crate::engine::{Rank, Told};

/// An event in their index's terms.
pub fn event(rank: Rank, id: u64, told: &Told) -> RouterEvent {
    let data = match told {
        Told::Stored { parent, blocks } => KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: parent.map(ExternalSequenceBlockHash),
            start_position: None,
            blocks: blocks
                .iter()
                .map(|(name, local)| KvCacheStoredBlockData {
                    block_hash: ExternalSequenceBlockHash(*name),
                    tokens_hash: LocalBlockHash(local.0),
                    mm_extra_info: None,
                })
                .collect(),
        }),
        Told::Removed(names) => KvCacheEventData::Removed(KvCacheRemoveData {
            block_hashes: names.iter().copied().map(ExternalSequenceBlockHash).collect(),
        }),
        Told::Cleared => KvCacheEventData::Cleared,
    };
    RouterEvent::new(u64::from(rank.engine), KvCacheEvent { event_id: id, data, dp_rank: rank.rank })
}

/// A prompt in their terms.
pub fn prompt(locals: &[LocalHash]) -> Vec<LocalBlockHash> {
    locals.iter().map(|local| LocalBlockHash(local.0)).collect()
}

/// How deep each rank matches.
pub fn depths(scores: &OverlapScores) -> BTreeMap<Rank, u32> {
    let scores = scores.scores.iter().filter(|(_, score)| **score > 0);
    scores
        .map(|(worker, score)| (Rank { engine: worker.worker_id as u32, rank: worker.dp_rank }, *score))
        .collect()
}
