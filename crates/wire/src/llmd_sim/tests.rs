use serde_json::json;
use warmroute_index::event::EngineHash;

use super::super::Engine;
use super::super::testing::{one_stored, plain, stored_with};

#[test]
fn a_parent_of_zero_is_none() {
    let array = json!(["BlockStored", [7], 0, [1, 2], 2, null, "GPU", null]);
    assert_eq!(one_stored(Engine::LlmdSim, &array), plain());
    let child = stored_with(&json!({"parent_block_hash": 5}));
    assert_eq!(one_stored(Engine::LlmdSim, &child).parent, Some(EngineHash(5)));
    // Elsewhere it is a name like any other.
    assert_eq!(one_stored(Engine::Vllm, &array).parent, Some(EngineHash(0)));
}
