//! Clients that hang up.

use serde_json::json;
use tokio::time::timeout;

use crate::support::{Client, DEADLINE, start, tokens, until};

async fn all_free(client: &Client) {
    until("the release", || async {
        let idle = client.metric("vllm:num_requests_running").await == 0.0
            && client.metric("vllm:kv_cache_usage_perc").await == 0.0;
        idle.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_is_dropped_frees_its_blocks() {
    let (server, client) = start(&["--decode-ms-per-token", "50"]).await;
    let body = json!({ "prompt": tokens(0, 9), "max_tokens": 10_000, "stream": true });
    let mut response = client.send("/v1/completions", &body).await;
    timeout(DEADLINE, response.chunk()).await.unwrap().unwrap().expect("a first token");
    assert_eq!(client.metric("vllm:num_requests_running").await, 1.0);
    assert!(client.metric("vllm:kv_cache_usage_perc").await > 0.0);
    drop(response);
    all_free(&client).await;
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_is_dropped_frees_its_blocks_and_its_place() {
    let (server, client) = start(&["--base-ms", "600000", "--max-running", "1"]).await;
    let body = json!({ "prompt": [tokens(0, 9), tokens(100, 9)], "max_tokens": 1 });
    let request = client.send("/v1/completions", &body);
    tokio::select! {
        _ = request => panic!("it cannot be ready"),
        () = until("the request", || async {
            let running = client.metric("vllm:num_requests_running").await == 1.0;
            (running && client.metric("vllm:num_requests_waiting").await == 1.0).then_some(())
        }) => {}
    }
    all_free(&client).await;
    assert_eq!(client.metric("vllm:num_requests_waiting").await, 0.0);
    server.stop().await;
}

#[tokio::test]
async fn the_cache_cannot_be_reset_under_a_running_request() {
    let (server, client) = start(&["--decode-ms-per-token", "50"]).await;
    let body = json!({ "prompt": tokens(0, 9), "max_tokens": 10_000, "stream": true });
    let mut response = client.send("/v1/completions", &body).await;
    timeout(DEADLINE, response.chunk()).await.unwrap().unwrap().expect("a first token");
    let (status, answer) = client.post("/reset_prefix_cache", &json!(null)).await;
    assert_eq!((status.as_u16(), &answer["success"]), (500, &json!(false)));
    drop(response);
    server.stop().await;
}
