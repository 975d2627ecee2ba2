//! Time and metrics in a real run.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{start, tokens};

#[tokio::test]
async fn prefill_takes_its_time_and_a_hit_saves_it() {
    let (server, client) = start(&["--prefill-us-per-token", "1000"]).await;
    let prompt = tokens(0, 201);
    let started = Instant::now();
    client.cached_tokens(&prompt).await;
    let cold = started.elapsed();
    assert!(cold >= Duration::from_millis(202), "{cold:?}");
    let started = Instant::now();
    assert_eq!(client.cached_tokens(&prompt).await, 200);
    let warm = started.elapsed();
    assert!(warm < cold / 2, "{warm:?} after {cold:?}");
    server.stop().await;
}

#[tokio::test]
async fn prefills_of_one_engine_are_serial() {
    let (server, client) = start(&["--prefill-us-per-token", "1000"]).await;
    let started = Instant::now();
    let body = json!({ "prompt": [tokens(0, 101), tokens(1000, 101)], "max_tokens": 1 });
    client.complete(&body).await;
    assert!(started.elapsed() >= Duration::from_millis(203), "{:?}", started.elapsed());
    server.stop().await;
}

#[tokio::test]
async fn counts_queries_and_hits_in_tokens() {
    let (server, client) = start(&[]).await;
    client.cached_tokens(&tokens(0, 10)).await;
    client.cached_tokens(&tokens(0, 10)).await;
    assert_eq!(client.metric("vllm:prefix_cache_queries_total").await, 20.0);
    assert_eq!(client.metric("vllm:prefix_cache_hits_total").await, 8.0);
    assert!(client.metric("process_start_time_seconds").await > 1.0e9);
    server.stop().await;
}
