//! The endpoints with token ids on both sides.

use serde_json::json;

use crate::support::{start, tokens};

#[tokio::test]
async fn vllm_generate_takes_and_gives_token_ids() {
    let (server, client) = start(&[]).await;
    let body =
        json!({ "token_ids": tokens(0, 9), "sampling_params": { "max_tokens": 2 }, "cache_salt": "tenant" });
    client.post("/inference/v1/generate", &body).await;
    let (status, answer) = client.post("/inference/v1/generate", &body).await;
    assert!(status.is_success());
    assert_eq!(answer["choices"][0]["token_ids"].as_array().unwrap().len(), 2);
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 8);
    server.stop().await;
}

#[tokio::test]
async fn sglang_generate_shares_the_cache() {
    let (server, client) = start(&[]).await;
    client.cached_tokens(&tokens(0, 9)).await;
    let (status, answer) = client
        .post("/generate", &json!({ "input_ids": tokens(0, 9), "sampling_params": { "max_new_tokens": 2 } }))
        .await;
    assert!(status.is_success());
    assert_eq!(answer["output_ids"].as_array().unwrap().len(), 2);
    assert_eq!(answer["meta_info"]["cached_tokens"], 8);
    server.stop().await;
}
