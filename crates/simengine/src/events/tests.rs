//! The encoding, byte by byte where it matters.

use super::*;
use crate::cache::{BlockHash, ChainHasher, Lora, StoredBlocks};
use crate::config::{EventFormat, HashFormat};

fn encoder(event_format: EventFormat, hash_format: HashFormat) -> Encoder {
    Encoder { event_format, hash_format, block_size: 2 }
}

fn hash(token: u32) -> BlockHash {
    ChainHasher::new(1).block(None, &[token], &[])
}

fn stored() -> CacheEvent {
    CacheEvent::Stored(StoredBlocks {
        hashes: vec![hash(1), hash(2)],
        parent: None,
        tokens: vec![1, 2, 300, 4],
        lora: Some(Lora { id: 1, name: "ad1".into() }),
        extra_keys: vec![vec!["ad1".into(), "salt".into()], vec![]],
    })
}

/// msgpack's short string.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = vec![0xa0 | u8::try_from(text.len()).unwrap()];
    bytes.extend(text.as_bytes());
    bytes
}

fn int(value: u64) -> Vec<u8> {
    let mut bytes = vec![0xcf];
    bytes.extend(value.to_be_bytes());
    bytes
}

fn bin(value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xc4, 32];
    bytes.extend(value);
    bytes
}

/// `[1.5, [event], 0]`
fn batch(event: Vec<u8>) -> Vec<u8> {
    let mut bytes = vec![0x93, 0xcb];
    bytes.extend(1.5_f64.to_be_bytes());
    bytes.push(0x91);
    bytes.extend(event);
    bytes.push(0);
    bytes
}

#[test]
fn a_store_is_a_map_with_its_type_first() {
    let event = [
        vec![0x8b],
        text("type"),
        text("BlockStored"),
        text("block_hashes"),
        vec![0x92],
        int(hash(1).low64()),
        int(hash(2).low64()),
        text("parent_block_hash"),
        vec![0xc0],
        text("token_ids"),
        vec![0x94, 1, 2, 0xcd, 1, 44, 4],
        text("block_size"),
        vec![2],
        text("lora_id"),
        vec![1],
        text("medium"),
        text("GPU"),
        text("lora_name"),
        text("ad1"),
        text("extra_keys"),
        vec![0x92, 0x92],
        text("ad1"),
        text("salt"),
        vec![0xc0],
        text("group_idx"),
        vec![0],
        text("kv_cache_spec_kind"),
        text("full_attention"),
    ];
    let payload = encoder(EventFormat::Map, HashFormat::Int).encode(1.5, &[stored()]).unwrap();
    assert_eq!(payload, batch(event.concat()));
}

#[test]
fn a_store_is_an_array_of_twelve_fields() {
    let event = [
        vec![0x9c],
        text("BlockStored"),
        vec![0x92],
        bin(hash(1).as_bytes()),
        bin(hash(2).as_bytes()),
        vec![0xc0, 0x94, 1, 2, 0xcd, 1, 44, 4, 2, 1],
        text("GPU"),
        text("ad1"),
        vec![0x92, 0x92],
        text("ad1"),
        text("salt"),
        vec![0xc0, 0],
        text("full_attention"),
        vec![0xc0],
    ];
    let payload = encoder(EventFormat::Array, HashFormat::Bytes).encode(1.5, &[stored()]).unwrap();
    assert_eq!(payload, batch(event.concat()));
}

#[test]
fn removals_and_clears_have_both_shapes() {
    let removed = [CacheEvent::Removed(hash(1))];
    let as_map = [
        vec![0x84],
        text("type"),
        text("BlockRemoved"),
        text("block_hashes"),
        vec![0x91],
        int(hash(1).low64()),
        text("medium"),
        text("GPU"),
        text("group_idx"),
        vec![0],
    ];
    let as_array = [vec![0x94], text("BlockRemoved"), vec![0x91], int(hash(1).low64()), text("GPU"), vec![0]];
    let map = encoder(EventFormat::Map, HashFormat::Int);
    let array = encoder(EventFormat::Array, HashFormat::Int);
    assert_eq!(map.encode(1.5, &removed).unwrap(), batch(as_map.concat()));
    assert_eq!(array.encode(1.5, &removed).unwrap(), batch(as_array.concat()));
    let cleared = [CacheEvent::Cleared];
    let as_map = [vec![0x81], text("type"), text("AllBlocksCleared")];
    let as_array = [vec![0x91], text("AllBlocksCleared")];
    assert_eq!(map.encode(1.5, &cleared).unwrap(), batch(as_map.concat()));
    assert_eq!(array.encode(1.5, &cleared).unwrap(), batch(as_array.concat()));
}
