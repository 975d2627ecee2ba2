//! What the tests of the engines' dialects share.

use serde_json::{Value, json};
use warmroute_index::event::{EngineHash, Event, Group, Stored};
use warmroute_routing::Tier;

use super::{Adapter, Batch, Engine};

pub(crate) fn pack(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec(value).unwrap()
}

pub(crate) fn batch_of(events: &Value) -> Vec<u8> {
    pack(&json!([1.5, events, 0]))
}

/// One batch of an engine that has said nothing before.
pub(crate) fn decode(engine: Engine, events: &Value) -> Batch {
    Adapter::new(engine).decode(&batch_of(events)).unwrap()
}

/// A root store of one block of two tokens, with more fields.
pub(crate) fn stored_with(fields: &Value) -> Value {
    let mut event = json!({
        "type": "BlockStored", "block_hashes": [7], "parent_block_hash": null, "token_ids": [1, 2], "block_size": 2,
        "lora_id": null, "medium": "GPU", "lora_name": null,
    });
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    event
}

/// The only event of a batch, which is a store.
pub(crate) fn one_stored(engine: Engine, event: &Value) -> Stored {
    let batch = decode(engine, &json!([event]));
    match &*batch.events {
        [Event::Stored(stored)] => stored.clone(),
        _ => panic!("{batch:?}"),
    }
}

/// What [`stored_with`] means without more fields.
pub(crate) fn plain() -> Stored {
    Stored {
        hashes: vec![EngineHash(7)],
        parent: None,
        tokens: vec![1, 2],
        block_size: 2,
        media: vec![],
        lora: None,
        salt: None,
        tier: Tier::Gpu,
        group: Group(0),
    }
}
