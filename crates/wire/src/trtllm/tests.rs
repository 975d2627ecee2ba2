use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use super::super::Engine;
use super::super::testing::{decode, one_stored, plain, stored_with};

#[test]
fn reads_a_map_as_it_is() {
    assert_eq!(
        one_stored(Engine::TrtLlm, &stored_with(&json!({"locality": "LOCAL", "mm_keys": []}))),
        plain()
    );
}

#[test]
fn a_text_among_the_tokens_is_a_medium_of_its_block() {
    let event = stored_with(&json!({"block_hashes": [7, 8], "token_ids": [1, 2, "digest", 4]}));
    let stored = one_stored(Engine::TrtLlm, &event);
    assert_eq!((stored.tokens, stored.media), (vec![1, 2, 0, 4], vec![vec![], vec![xxh3_64(b"digest")]]));
    // No other engine sends texts.
    assert_eq!(decode(Engine::Vllm, &json!([event])).bad.len(), 1);
}

#[test]
fn blocks_with_keys_of_media_never_pass_for_plain() {
    let media = |keys| {
        let event = stored_with(&json!({"block_hashes": [7, 8], "token_ids": [1, 2, 3, 4], "mm_keys": keys}));
        one_stored(Engine::TrtLlm, &event).media.iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(media(json!(null)), [0; 0]);
    assert_eq!(media(json!([[], null])), [0; 0]);
    assert_eq!(media(json!([[], [["a", 1]]])), [0, 1]);
    // Not one for each block: whose they are is not known.
    assert_eq!(media(json!([{"hash": "a"}])), [1, 1]);
    assert_eq!(media(json!(["a", "b", "c"])), [3, 3]);
}
