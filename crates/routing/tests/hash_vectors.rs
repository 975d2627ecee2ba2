//! Every vector that NVIDIA Dynamo's own hashing was run on gives the same hashes here.
#![allow(clippy::unwrap_used, reason = "a test file")]

use serde::Deserialize;
use warmroute_routing::hash::{
    LocalHash, Namespace, PromptHasher, SequenceHash, eagle_local_hashes, sequence_hashes,
};

#[derive(Deserialize)]
struct Vectors {
    hash_vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    tokens: Vec<u32>,
    block_size: u32,
    block_mm_infos: Option<Vec<Option<MediaInfo>>>,
    lora_name: Option<String>,
    is_eagle: Option<bool>,
    cache_namespace: Option<String>,
    xxh3_seed: String,
    block_hashes: Vec<String>,
    sequence_hashes: Vec<String>,
}

#[derive(Deserialize)]
struct MediaInfo {
    mm_objects: Vec<MediaObject>,
}

#[derive(Deserialize)]
struct MediaObject {
    mm_hash: u64,
}

impl Vector {
    fn namespace(&self) -> Namespace {
        Namespace::new(self.lora_name.as_deref(), self.cache_namespace.as_deref())
    }

    fn locals(&self) -> Vec<LocalHash> {
        if self.is_eagle == Some(true) {
            return eagle_local_hashes(&self.tokens, self.block_size, self.namespace());
        }
        let media = |block: usize| -> Vec<u64> {
            let info = self.block_mm_infos.as_ref().and_then(|infos| infos.get(block)?.as_ref());
            info.map(|info| info.mm_objects.iter().map(|object| object.mm_hash).collect()).unwrap_or_default()
        };
        self.tokens
            .chunks_exact(self.block_size as usize)
            .enumerate()
            .map(|(i, block)| LocalHash::of_block_with_media(self.namespace(), block, &mut media(i)))
            .collect()
    }
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str::<Vectors>(include_str!("data/dynamo_hashes.json")).unwrap().hash_vectors
}

fn numbers(texts: &[String]) -> Vec<u64> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn equals_dynamos_hashes() {
    let vectors = vectors();
    assert!(vectors.len() >= 20, "{} vectors", vectors.len());
    for vector in &vectors {
        assert_eq!(vector.namespace().seed(), vector.xxh3_seed.parse::<u64>().unwrap(), "{}", vector.name);
        let locals = vector.locals();
        let sequence = SequenceHash::chain(locals.iter().copied());
        assert_eq!(
            locals.iter().map(|h| h.0).collect::<Vec<_>>(),
            numbers(&vector.block_hashes),
            "{}",
            vector.name
        );
        assert_eq!(
            sequence.iter().map(|h| h.0).collect::<Vec<_>>(),
            numbers(&vector.sequence_hashes),
            "{}",
            vector.name
        );
    }
}

#[test]
fn hashing_token_by_token_equals_hashing_the_whole() {
    let plain = vectors().into_iter().filter(|v| v.block_mm_infos.is_none() && v.is_eagle.is_none());
    for vector in plain {
        let mut hasher = PromptHasher::new(vector.block_size, vector.namespace());
        // In pieces that end within blocks and at their ends, and span several.
        let (first, rest) = vector.tokens.split_at(vector.tokens.len() / 3);
        hasher.extend(first);
        rest.chunks(5).for_each(|piece| hasher.extend(piece));
        assert_eq!(hasher.hashes(), sequence_hashes(&vector.tokens, vector.block_size, vector.namespace()));
        assert_eq!(hasher.tokens(), vector.tokens.len(), "{}", vector.name);
    }
}
