use serde_json::{Value, json};
use warmroute_index::event::Event;
use warmroute_routing::Tier;

use super::super::testing::{batch_of, decode, one_stored, pack, plain, stored_with};
use super::super::{Adapter, Engine};
use super::*;

fn stored(event: &Value) -> Stored {
    one_stored(Engine::Sglang, event)
}

#[test]
fn reads_the_fields_of_every_release() {
    assert_eq!(stored(&json!(["BlockStored", [7], null, [1, 2], 2, null])), plain());
    assert_eq!(stored(&json!(["BlockStored", [7], null, [1, 2], 2, null, "GPU"])), plain());
    assert_eq!(stored(&stored_with(&json!({"session_id": "s"}))), plain());
    let signed = stored(&stored_with(&json!({"block_hashes": [-1], "parent_block_hash": -2})));
    assert_eq!(
        (&*signed.hashes, signed.parent),
        (&[EngineHash(u64::MAX)][..], Some(EngineHash(u64::MAX - 1)))
    );
}

#[test]
fn tiers_have_their_names() {
    for (medium, tier) in [("CPU_PINNED", Tier::Cpu), ("DISK", Tier::Disk), ("EXTERNAL", Tier::External)] {
        assert_eq!(stored(&stored_with(&json!({"medium": medium}))).tier, tier);
    }
}

#[test]
fn the_salt_is_found_in_each_of_its_places() {
    // 0.5.18 and 0.5.19: a map where vLLM has the adapter's name.
    let array = json!(["BlockStored", [7], null, [1, 2], 2, null, "GPU", {"cache_salt": "tenant"}]);
    for event in [array, stored_with(&json!({"cache_salt": "tenant"}))] {
        assert_eq!(stored(&event), Stored { salt: Some("tenant".into()), ..plain() });
    }
}

#[test]
fn pairs_of_tokens_count_by_their_first() {
    assert_eq!(stored(&stored_with(&json!({"token_ids": [[1, 2], [2, 3]]}))), plain());
}

#[test]
fn an_adapter_has_names_of_its_own_and_a_removal_takes_them_all() {
    let mut adapter = Adapter::new(Engine::Sglang);
    let mut decode = |event: Value| adapter.decode(&batch_of(&json!([event]))).unwrap().events;
    let base = decode(stored_with(&json!({})));
    let tuned = decode(stored_with(&json!({"lora_name": "ad1"})));
    let (Event::Stored(base), Event::Stored(tuned)) = (&base[0], &tuned[0]) else { panic!() };
    assert_ne!(base.hashes, tuned.hashes);
    assert_eq!(tuned.lora.as_deref(), Some("ad1"));
    let child =
        decode(stored_with(&json!({"lora_name": "ad1", "parent_block_hash": 7, "block_hashes": [8]})));
    assert!(matches!(&child[0], Event::Stored(child) if child.parent == Some(tuned.hashes[0])));
    let removed = decode(json!({"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU"}));
    assert!(
        matches!(&removed[0], Event::Removed(r) if r.hashes == [base.hashes[0], tuned.hashes[0]]),
        "{removed:?}"
    );
}

#[test]
fn a_release_whose_names_are_not_chained_is_recognised() {
    // python3 -c 'print(hash((1, 2)), hash(((1, 2), (2, 3))))'
    let (plain, pairs) = (-3_550_055_125_485_641_917_i64, 8_374_439_192_799_522_889_i64);
    for event in [
        json!(["BlockStored", [plain], null, [1, 2], 2, null]),
        json!(["BlockStored", [5, plain], 4, [9, 9, 1, 2], 2, null]),
        json!(["BlockStored", [pairs], 4, [[1, 2], [2, 3]], 2, null]),
    ] {
        let batch = decode(Engine::Sglang, &json!([["BlockRemoved", [1]], event]));
        assert_eq!(batch.unsupported, Some(Unsupported::UnchainedHashes), "{event}");
        assert!(batch.is_empty());
    }
    // A batch without a rank is of 0.4.6 or 0.4.7.
    let batch = Adapter::new(Engine::Sglang).decode(&pack(&json!([1.5, []]))).unwrap();
    assert_eq!(batch.unsupported, Some(Unsupported::UnchainedHashes));
    // Releases that name the medium are not suspected, nor is vLLM.
    let event = json!(["BlockStored", [plain], null, [1, 2], 2, null, "GPU"]);
    assert_eq!(decode(Engine::Sglang, &json!([event])).unsupported, None);
    let event = json!(["BlockStored", [plain], null, [1, 2], 2, null]);
    assert_eq!(decode(Engine::Vllm, &json!([event])).unsupported, None);
}

#[test]
fn a_placeholder_has_no_tokens_to_suspect() {
    let event = json!(["BlockStored", [7], null, [], 0, null]);
    assert_eq!(decode(Engine::Sglang, &json!([event])).events.len(), 1);
}
