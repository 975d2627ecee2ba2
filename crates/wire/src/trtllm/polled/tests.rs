use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use warmroute_index::{Index, Options, WorkerIdentity};
use warmroute_routing::page::{Generation, PageBits};

use super::*;

fn read(reader: &mut Reader, event: &Value) -> Batch {
    reader.read(event.to_string().as_bytes())
}

fn block(hash: u64, tokens: &[u32]) -> Value {
    let tokens: Vec<_> = tokens
        .iter()
        .map(|token| json!({"type": "unique_token", "token_id": token, "token_extra_id": 0}))
        .collect();
    json!({"type": "stored_block", "block_hash": hash, "tokens": tokens, "cache_level": 0, "priority": 35,
        "mm_keys": [], "cache_salt": null})
}

fn store(parent: Option<u64>, blocks: &[Value]) -> Value {
    json!({"event_id": 1, "data": {"type": "stored", "parent_hash": parent, "blocks": blocks}, "window_size": 64})
}

fn remove(hashes: &[u64]) -> Value {
    json!({"event_id": 2, "data": {"type": "removed", "block_hashes": hashes}, "window_size": 64})
}

/// The only event, a store.
fn one_stored(batch: &Batch) -> &Stored {
    match &*batch.events {
        [Event::Stored(stored)] => stored,
        _ => panic!("{batch:?}"),
    }
}

#[test]
fn an_answer_is_taken_apart_by_number_and_rank() {
    let answer = Bytes::from_static(
        br#" [{"event_id":0,"data":{"type":"created"}}, 7, {"attention_dp_rank":3,"event_id":4} , {"event_id":-1}] "#,
    );
    let events = split(&answer).unwrap();
    assert_eq!(
        events[0],
        Ok(Numbered {
            id: 0,
            rank: 0,
            event: Bytes::from_static(br#"{"event_id":0,"data":{"type":"created"}}"#)
        })
    );
    assert!(matches!((&events[1], &events[3]), (Err(BadEvent::Field { .. }), Err(BadEvent::Field { .. }))));
    assert_eq!(events[2].as_ref().map(|event| (event.id, event.rank)), Ok((4, 3)));
    assert_eq!(split(&Bytes::from_static(b"[]")), Ok(vec![]));
    assert_eq!(split(&Bytes::from_static(b"null")), Ok(vec![]));
    for bad in ["{}", "", "[{}", "[1] x"] {
        assert!(split(&Bytes::from_static(bad.as_bytes())).is_err(), "{bad}");
    }
}

#[test]
fn reads_a_documented_store() {
    let event = json!({"event_id": 1, "data": {"type": "stored", "parent_hash": null, "blocks": [
        {"type": "stored_block", "block_hash": 4_203_099_703_668_305_365_u64, "tokens": [
            {"type": "unique_token", "token_id": 1, "token_extra_id": 0},
            {"type": "unique_token", "token_id": 2, "token_extra_id": 0}],
            "cache_level": 0, "priority": 35, "mm_keys": [], "cache_salt": null}]},
        "window_size": 32768, "attention_dp_rank": 0});
    let batch = read(&mut Reader::new(2), &event);
    let expected = Stored {
        block_size: 2,
        ..stored(vec![EngineHash(4_203_099_703_668_305_365)], None, vec![1, 2], Tier::Gpu)
    };
    assert_eq!(one_stored(&batch), &expected);
    assert!(batch.skipped.is_empty() && batch.bad.is_empty());
}

#[test]
fn hashes_are_integers_of_either_sign_or_hexadecimal() {
    let name = |hash: &Value| {
        let mut first = block(0, &[1, 2]);
        first["block_hash"] = hash.clone();
        let batch = read(&mut Reader::new(2), &store(None, &[first]));
        batch.events.first().map(|_| one_stored(&batch).hashes[0].0)
    };
    assert_eq!(name(&json!(u64::MAX)), Some(u64::MAX));
    assert_eq!(name(&json!(-1)), Some(u64::MAX));
    assert_eq!(name(&json!("ff")), Some(255));
    assert_eq!(name(&json!(format!("{}00000000000000fe", "ab".repeat(24)))), Some(254));
    for bad in [json!(""), json!("xyz"), json!("+1"), json!(1.5), json!(null)] {
        assert_eq!(name(&bad), None, "{bad}");
    }
}

#[test]
fn only_the_largest_window_counts() {
    let of = |window: u64, data: Value| json!({"event_id": 0, "window_size": window, "data": data});
    let created = json!({"type": "created", "num_blocks_per_cache_level": [10, 0]});
    let first = json!({"type": "stored", "parent_hash": null, "blocks": [block(7, &[1, 2])]});
    let mut reader = Reader::new(2);
    assert!(read(&mut reader, &of(512, created.clone())).is_empty());
    assert!(read(&mut reader, &of(4096, created)).is_empty());
    assert_eq!(read(&mut reader, &of(512, first.clone())).skipped, [Skipped::OtherAttention]);
    assert_eq!(read(&mut reader, &of(4096, first.clone())).events.len(), 1);
    // Over a loss the windows stay: they are not told again.
    reader.forget_blocks();
    assert_eq!(read(&mut reader, &of(512, first.clone())).skipped, [Skipped::OtherAttention]);
    // Who comes too late for `created` learns of the larger window by its first block: the rest was of another one.
    reader.forget();
    assert_eq!(read(&mut reader, &of(512, first.clone())).events.len(), 1);
    let batch = read(&mut reader, &of(4096, first));
    assert!(matches!(&*batch.events, [Event::Cleared, Event::Stored(_)]), "{batch:?}");
}

#[test]
fn a_block_that_is_not_full_is_left_out_and_its_removal_too() {
    let mut reader = Reader::new(2);
    let batch = read(&mut reader, &store(None, &[block(7, &[1, 2]), block(8, &[3])]));
    assert_eq!(
        (&*one_stored(&batch).tokens, &*batch.skipped),
        ([1, 2].as_slice(), [Skipped::Partial].as_slice())
    );
    let batch = read(&mut reader, &remove(&[8]));
    assert!(batch.events.is_empty(), "{batch:?}");
    let batch = read(&mut reader, &store(Some(7), &[block(9, &[3, 4])]));
    assert_eq!(
        (one_stored(&batch).parent, &*one_stored(&batch).tokens),
        (Some(EngineHash(7)), [3, 4].as_slice())
    );
    let batch = read(&mut reader, &remove(&[9, 7]));
    assert_eq!(batch.events, [Event::Removed(removed(vec![EngineHash(9), EngineHash(7)], Tier::Gpu))]);
}

#[test]
fn blocks_of_another_size_than_the_pools_are_shown_as_such() {
    let size = |reader: &mut Reader, event: &Value| one_stored(&read(reader, event)).block_size;
    // Larger, and smaller with a block behind it: in one event or in two.
    assert_eq!(size(&mut Reader::new(2), &store(None, &[block(7, &[1, 2, 3, 4])])), 4);
    assert_eq!(size(&mut Reader::new(4), &store(None, &[block(7, &[1, 2]), block(8, &[3, 4])])), 2);
    let mut reader = Reader::new(4);
    assert_eq!(read(&mut reader, &store(None, &[block(7, &[1, 2])])).skipped, [Skipped::Partial]);
    assert_eq!(size(&mut reader, &store(Some(7), &[block(8, &[3, 4])])), 2);
}

#[test]
fn what_is_not_plain_does_not_pass_for_plain() {
    let stored = |fields: Value| {
        let mut first = block(7, &[1, 2]);
        first.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        one_stored(&read(&mut Reader::new(2), &store(None, &[first]))).clone()
    };
    assert_eq!(stored(json!({"cache_salt": "s"})).salt.as_deref(), Some("s"));
    assert_eq!(stored(json!({"cache_salt": 9})).salt.as_deref(), Some("cache_salt:9"));
    assert_eq!(stored(json!({"lora_name": "a", "lora_id": 3})).lora.as_deref(), Some("a"));
    assert_eq!(stored(json!({"lora_id": 3})).lora.as_deref(), Some("lora_id:3"));
    assert_eq!(stored(json!({"lora_id": null, "lora_name": ""})).lora, None);
    let key = json!({"type": "mm_key", "hash": "aa", "start_offset": 0});
    assert_eq!(stored(json!({"mm_keys": [key]})).media[0].len(), 1);
    let tokens = json!([{"token_id": 1, "token_extra_id": 5}, {"token_id": 2}]);
    assert_eq!(stored(json!({"tokens": tokens})).media, [[5]]);
    assert!(stored(json!({"mm_keys": null})).media.is_empty());
}

/// Moves, stores told twice and removals, as the index takes them.
#[test]
fn a_block_is_in_one_tier_at_a_time() {
    let options = Options { block_size: 2, page_bits: PageBits::new(0).unwrap(), max_orphans: 8 };
    let mut index = Index::new(options, Generation(1));
    let worker = index.add_worker(WorkerIdentity { address: "a".into(), rank: 0 }).unwrap();
    let mut reader = Reader::new(2);
    let mut tiers = |event: &Value| -> Vec<Tier> {
        for event in read(&mut reader, event).events {
            let applied = index.apply(worker, &event).unwrap();
            assert_eq!((applied.unknown_removed, applied.skipped), (0, 0), "{event:?}");
        }
        let page = index.page(0);
        let page = warmroute_routing::page::Page::parse(&page).unwrap();
        page.records()
            .flat_map(|(_, record)| record.holders.iter().map(|holder| holder.tier).collect::<Vec<_>>())
            .collect()
    };
    let level = |hash: u64, level: &Value| {
        json!({"event_id": 3, "window_size": 64, "data": {"type": "updated", "block_hash": hash,
            "cache_level": level, "priority": {"type": "event_diff", "new_value": 35, "old_value": 35}}})
    };
    let to = |new: u32, old: u32| json!({"type": "event_diff", "new_value": new, "old_value": old});
    assert_eq!(tiers(&store(None, &[block(7, &[1, 2])])), vec![Tier::Gpu]);
    assert_eq!(tiers(&store(None, &[block(7, &[1, 2])])), vec![Tier::Gpu]);
    assert_eq!(tiers(&level(7, &to(1, 0))), vec![Tier::Cpu]);
    assert_eq!(tiers(&level(7, &json!(null))), vec![Tier::Cpu]);
    assert_eq!(tiers(&level(99, &to(1, 0))), vec![Tier::Cpu]);
    assert_eq!(tiers(&level(7, &to(0, 1))), vec![Tier::Gpu]);
    assert_eq!(tiers(&level(7, &to(2, 0))), vec![Tier::Disk]);
    assert_eq!(tiers(&remove(&[7])), vec![]);
    let mut below = block(8, &[3, 4]);
    below["cache_level"] = json!(1);
    assert_eq!(tiers(&store(None, &[block(7, &[1, 2]), below])).len(), 2);
    assert_eq!(tiers(&remove(&[7, 8])), vec![]);
}

#[test]
fn an_event_that_cannot_be_read_costs_itself() {
    let mut reader = Reader::new(2);
    for bad in [
        json!(7),
        json!({"event_id": 1}),
        json!({"data": {"type": "stored"}}),
        json!({"data": {"type": "removed", "block_hashes": [{}]}}),
        json!({"data": {"blocks": []}}),
    ] {
        assert_eq!(read(&mut reader, &bad).bad.len(), 1, "{bad}");
    }
    let batch = read(&mut reader, &json!({"data": {"type": "of tomorrow", "blocks": 7}}));
    assert_eq!(batch.skipped, [Skipped::UnknownType]);
    assert!(read(&mut reader, &store(None, &[])).is_empty());
}

/// Any JSON that looks a little like events.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<u64>().prop_map(|number| json!(number)),
        (0..9_u32).prop_map(|number| json!(number)),
        prop::sample::select(vec!["stored", "removed", "updated", "created", "ff", ""])
            .prop_map(|text| json!(text)),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let names = vec![
            "type",
            "data",
            "blocks",
            "block_hash",
            "block_hashes",
            "parent_hash",
            "tokens",
            "token_id",
            "token_extra_id",
            "cache_level",
            "new_value",
            "mm_keys",
            "cache_salt",
            "lora_id",
            "window_size",
            "event_id",
        ];
        let field = (prop::sample::select(names), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            prop::collection::vec(field, 0..6).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_an_engine_answers_costs_no_more_than_itself(events in prop::collection::vec(any_json(), 0..6)) {
        let answer = Bytes::from(json!(events).to_string());
        prop_assert_eq!(split(&answer).unwrap().len(), events.len());
        let mut reader = Reader::new(2);
        events.iter().for_each(|event| drop(read(&mut reader, event)));
        let after = read(&mut reader, &json!({"data": {"type": "stored", "blocks": [block(7, &[1, 2])]}}));
        prop_assert_eq!(after.events.len(), 1);
    }
}
