use serde_json::{Value, json};
use warmroute_index::event::{EngineHash, Event, Removed, Stored};
use warmroute_routing::Tier;
use xxhash_rust::xxh3::xxh3_64;

use super::super::batch::{BadEvent, Batch};
use super::super::testing::{batch_of, pack, plain, stored_with};
use super::super::{Adapter, Engine, testing};
use super::*;

fn decode(events: &Value) -> Batch {
    testing::decode(Engine::Vllm, events)
}

fn one_stored(fields: &Value) -> Stored {
    testing::one_stored(Engine::Vllm, &stored_with(fields))
}

#[test]
fn reads_a_map_and_every_length_of_array() {
    assert_eq!(one_stored(&json!({})), plain());
    let full = json!(["BlockStored", [7], null, [1, 2], 2, null, "GPU", null, null, 0, "full_attention", null, "LOCAL",
        {"an": "owner"}, "session", [[3]], "a field of tomorrow", [[[]]]]);
    for len in 5..=full.as_array().unwrap().len() {
        let event = json!(full.as_array().unwrap()[..len]);
        assert_eq!(decode(&json!([event])).events, [Event::Stored(plain())], "{len} fields");
    }
    let removed = Event::Removed(Removed {
        hashes: vec![EngineHash(7)],
        left: vec![],
        tier: Tier::Gpu,
        group: Group(0),
    });
    for event in [
        json!(["BlockRemoved", [7]]),
        json!(["BlockRemoved", [7], "GPU"]),
        json!(["BlockRemoved", [7], null, 0, "LOCAL", {}]),
        json!({"type": "BlockRemoved", "block_hashes": [7]}),
        json!({"block_hashes": [7], "unknown": [1, {"a": null}], "type": "BlockRemoved"}),
    ] {
        assert_eq!(decode(&json!([event])).events, std::slice::from_ref(&removed), "{event}");
    }
    assert_eq!(
        decode(&json!([["AllBlocksCleared"], {"type": "AllBlocksCleared"}])).events,
        [Event::Cleared, Event::Cleared]
    );
}

/// The shape that vLLM's proposal #48933 gives it: aligned with the hashes, nil from producers that cannot tell.
#[test]
fn reads_how_many_copies_are_left() {
    let left = |counts: &Value| {
        let event = json!({"type": "BlockRemoved", "block_hashes": [7, 8], "medium": "GPU", "group_idx": 0,
            "remaining_copy_counts": counts});
        match &*decode(&json!([event])).events {
            [Event::Removed(removed)] => removed.left.clone(),
            events => panic!("{events:?}"),
        }
    };
    assert_eq!(left(&json!([1, 0])), [1, 0]);
    assert_eq!(left(&json!(null)), [0; 0]);
    // Whose they are is not known: the removal itself still counts.
    assert_eq!(left(&json!([1])), [0; 0]);
}

#[test]
fn reads_every_shape_of_batch() {
    let cleared = json!([["AllBlocksCleared"]]);
    for batch in [
        json!([1.5, cleared]),
        json!([1, cleared, 3]),
        json!([null, cleared, null, "more"]),
        json!({"ts": 1.5, "events": cleared, "data_parallel_rank": 0}),
    ] {
        assert_eq!(
            Adapter::new(Engine::Vllm).decode(&pack(&batch)).unwrap().events,
            [Event::Cleared],
            "{batch}"
        );
    }
    for not_a_batch in
        [json!(1), json!([]), json!([1.5]), json!([1.5, 2]), json!({"ts": 1}), json!({"events": 1})]
    {
        assert!(Adapter::new(Engine::Vllm).decode(&pack(&not_a_batch)).is_err(), "{not_a_batch}");
    }
}

#[test]
fn hashes_are_equal_as_integers_of_either_sign_and_as_bytes() {
    let hash = |hash: &[u8]| {
        let mut event = vec![0x92, 0xA0 + 12];
        event.extend_from_slice(b"BlockRemoved");
        event.push(0x91);
        event.extend_from_slice(hash);
        let payload = [&[0x92, 0x01, 0x91], &*event].concat();
        match &*Adapter::new(Engine::Vllm).decode(&payload).unwrap().events {
            [Event::Removed(removed)] => removed.hashes[0].0,
            _ => panic!(),
        }
    };
    let digest: Vec<u8> = (0..32).map(|i| 0xE0 + i).collect();
    let last = u64::from_be_bytes(digest[24..].try_into().unwrap());
    assert_eq!(hash(&[&[0xC4, 32], &*digest].concat()), last);
    assert_eq!(hash(&[&[0xCF], last.to_be_bytes().as_slice()].concat()), last);
    assert_eq!(hash(&[&[0xD3], last.to_be_bytes().as_slice()].concat()), last);
    assert_eq!(hash(&[0xC4, 1, 9]), 9);
}

#[test]
fn a_payload_of_more_events_than_any_engine_sends_is_read_only_so_far() {
    // [nil, [nil, nil, ...]], the second list claiming three million.
    let payload = [&[0x92, 0xc0, 0xdd][..], &3_000_000u32.to_be_bytes(), &vec![0xc0; 3_000_000]].concat();
    let batch = Adapter::new(Engine::Vllm).decode(&payload).unwrap();
    assert!(batch.len() <= 1_000_001);
    assert_eq!(batch.bad.last(), Some(&BadEvent::TooMany));
}

#[test]
fn a_bad_event_costs_only_itself() {
    let batch = decode(&json!([
        ["BlockRemoved", [1]],
        ["BlockRemoved", ["not a hash"]],
        ["BlockStored", [7], null, "not tokens", 2, null],
        ["BlockStored", [7], null, [-1, 4_294_967_296_u64], 2, null],
        ["BlockStored"],
        {"type": "BlockStored"},
        {"no": "type"},
        [],
        "text",
        ["BlockRemoved", [2]],
    ]));
    assert_eq!(batch.events.len(), 2);
    assert_eq!(batch.bad.len(), 8);
    assert_eq!(batch.len(), 10);
}

#[test]
fn unknown_types_are_counted_whatever_is_in_them() {
    let batch = decode(&json!([
        {"type": "BlockMoved", "block_hashes": "anything"},
        ["Heartbeat", {"a": [[[[]]]]}],
        ["AllBlocksCleared"],
    ]));
    assert_eq!(batch.skipped, [Skipped::UnknownType; 2]);
    assert_eq!(batch.events, [Event::Cleared]);
}

#[test]
fn events_before_a_cut_are_kept() {
    let whole = batch_of(&json!([["BlockRemoved", [1]], ["BlockRemoved", [2]], ["BlockRemoved", [3]]]));
    let batch = Adapter::new(Engine::Vllm).decode(&whole[..whole.len() - 4]).unwrap();
    assert_eq!(batch.events.len(), 2);
    assert_eq!(batch.bad, [BadEvent::Cut]);
}

#[test]
fn a_deep_nest_is_one_bad_event() {
    let mut payload = vec![0x92, 0x01, 0x92];
    payload.extend([0x93, 0xA0 + 12]);
    payload.extend(b"BlockRemoved");
    payload.extend([0x91, 0x07]);
    payload.extend(vec![0x91; 100_000]);
    payload.push(0xC0);
    payload.extend([0x91, 0xA0 + 16]);
    payload.extend(b"AllBlocksCleared");
    let batch = Adapter::new(Engine::Vllm).decode(&payload).unwrap();
    assert_eq!(batch.events, [Event::Cleared]);
    assert_eq!(batch.bad.len(), 1);
}

#[test]
fn only_groups_that_keep_every_token_are_indexed() {
    let mut decoder = Adapter::new(Engine::Vllm);
    let mut decode = |events: &Value| decoder.decode(&batch_of(events)).unwrap();
    let batch = decode(&json!([
        stored_with(&json!({"group_idx": 0, "kv_cache_spec_kind": "sliding_window"})),
        stored_with(&json!({"group_idx": 1, "kv_cache_spec_kind": "full_attention"})),
        stored_with(&json!({"group_idx": 2, "kv_cache_spec_kind": "a kind of tomorrow"})),
    ]));
    assert_eq!((batch.events.len(), batch.skipped.len()), (1, 2));
    // Removals do not tell the kind, and neither may a later store.
    let batch = decode(&json!([
        {"type": "BlockRemoved", "block_hashes": [7], "group_idx": 0},
        {"type": "BlockRemoved", "block_hashes": [7], "group_idx": 1},
        stored_with(&json!({"group_idx": 2})),
    ]));
    assert_eq!(batch.skipped, [Skipped::OtherAttention; 2]);
    assert!(matches!(&*batch.events, [Event::Removed(removed)] if removed.group == Group(1)));
}

#[test]
fn tokens_that_are_not_the_blocks_are_skipped_and_placeholders_are_not() {
    let batch = decode(&json!([
        stored_with(&json!({"token_ids": [1, 2, 3]})),
        stored_with(&json!({"block_hashes": []})),
        stored_with(&json!({"block_size": 0})),
    ]));
    assert_eq!(batch.skipped, [Skipped::Misaligned; 3]);
    let placeholder = one_stored(&json!({"token_ids": [], "block_size": 0, "medium": "CPU"}));
    assert_eq!((placeholder.tokens.len(), placeholder.block_size, placeholder.tier), (0, 0, Tier::Cpu));
}

#[test]
fn extra_keys_are_told_apart_by_place() {
    let keys =
        |lora: Option<&str>, keys: Value| one_stored(&json!({"lora_name": lora, "extra_keys": [keys]}));
    let salted = keys(None, json!(["tenant"]));
    assert_eq!((salted.salt.as_deref(), salted.media.len()), (Some("tenant"), 0));

    let adapter = keys(Some("ad1"), json!(["ad1"]));
    assert_eq!((adapter.lora.as_deref(), adapter.salt, adapter.media.len()), (Some("ad1"), None, 0));

    let both = keys(Some("ad1"), json!(["ad1", "ad1"]));
    assert_eq!((both.lora.as_deref(), both.salt.as_deref()), (Some("ad1"), Some("ad1")));

    let all = keys(Some("ad1"), json!(["ad1", ["image", 5], "tenant"]));
    assert_eq!((all.salt.as_deref(), all.media), (Some("tenant"), vec![vec![xxh3_64(b"image")]]));

    let moved = keys(None, json!([["image", 99]]));
    assert_eq!(moved.media, [[xxh3_64(b"image")]]);
}

#[test]
fn a_text_that_can_be_no_salt_is_a_medium() {
    let child = one_stored(&json!({"parent_block_hash": 5, "extra_keys": [["image"]]}));
    assert_eq!((child.salt, child.media), (None, vec![vec![xxh3_64(b"image")]]));
    let second = one_stored(
        &json!({"block_hashes": [7, 8], "token_ids": [1, 2, 3, 4], "extra_keys": [null, ["image"]]}),
    );
    assert_eq!((second.salt, second.media), (None, vec![vec![], vec![xxh3_64(b"image")]]));
}

#[test]
fn nothing_unknown_passes_for_plain() {
    let mut seen = std::collections::HashSet::new();
    for key in [
        json!(1),
        json!(-1),
        json!(1.5),
        json!(null),
        json!(true),
        json!([]),
        json!([[]]),
        json!({"a": 1}),
        json!(["image"]),
        json!(["cache_salt", "a"]),
        json!(["cache_salt", "b"]),
        json!(""),
    ] {
        let stored = one_stored(&json!({"extra_keys": [[key]]}));
        assert_eq!((stored.media.len(), stored.salt), (1, None), "{key}");
        assert!(seen.insert(stored.media), "{key}");
    }
    // An old engine's adapter has only a number.
    assert_eq!(one_stored(&json!({"lora_id": 3})).lora.as_deref(), Some("lora_id:3"));
    // Keys that cannot be given to blocks.
    assert_eq!(decode(&json!([stored_with(&json!({"extra_keys": [["a"], ["b"]]}))])).bad.len(), 1);
}

#[test]
fn a_reset_forgets_the_groups() {
    let mut decoder = Adapter::new(Engine::Vllm);
    let store = |fields| batch_of(&json!([stored_with(&fields)]));
    decoder.decode(&store(json!({"kv_cache_spec_kind": "mamba"}))).unwrap();
    assert_eq!(decoder.decode(&store(json!({}))).unwrap().events.len(), 0);
    decoder.reset();
    assert_eq!(decoder.decode(&store(json!({}))).unwrap().events.len(), 1);
}
