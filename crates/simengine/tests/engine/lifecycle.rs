//! Start, stop, start again.

use serde_json::json;
use warmroute_simengine::Server;

use crate::support::{Client, Subscriber, config, events_of, start, tokens, until};

#[tokio::test]
async fn a_restart_forgets_all_and_counts_from_zero() {
    let (server, client) = start(&["--events", "tcp://127.0.0.1:0"]).await;
    let addresses = server.addresses().clone();
    let mut subscriber = Subscriber::connect(events_of(&addresses), "", &client).await;
    client.cached_tokens(&tokens(0, 9)).await;
    let before = subscriber.next().await;
    server.stop().await;

    let (listen, events) = (addresses.listen.to_string(), events_of(&addresses).to_owned());
    let server = until("the restart", || async {
        Server::start(config(&["--listen", &listen, "--events", &events])).await.ok()
    })
    .await;
    assert_eq!(server.addresses(), &addresses);
    let client = Client::new(&addresses);
    assert_eq!(client.cached_tokens(&tokens(0, 9)).await, 0, "the cache is empty");
    // The subscriber connects again by itself, some time later.
    let mut first = 100;
    let after = loop {
        client.cached_tokens(&tokens(first, 9)).await;
        first += 100;
        if let Some(batch) = subscriber.try_next().await {
            break batch;
        }
        assert!(first < 100_000, "the subscriber never came back");
    };
    assert!(after.seq < u64::from(first / 100), "counted from 0");
    assert_ne!(after.events()[0]["block_hashes"], before.events()[0]["block_hashes"]);
    server.stop().await;
}

#[tokio::test]
async fn hashes_differ_between_engines() {
    let mut hashes = Vec::new();
    for _ in 0..2 {
        let (server, client) = start(&["--events", "tcp://127.0.0.1:0"]).await;
        let mut subscriber = Subscriber::connect(events_of(server.addresses()), "", &client).await;
        client.cached_tokens(&tokens(0, 9)).await;
        hashes.push(subscriber.next().await.events()[0]["block_hashes"].clone());
        server.stop().await;
    }
    assert_ne!(hashes[0], hashes[1]);
}

#[tokio::test]
async fn stop_ends_running_requests() {
    let (server, client) = start(&["--base-ms", "600000"]).await;
    let body = json!({ "prompt": tokens(0, 9), "max_tokens": 1 });
    let (answer, ()) = tokio::join!(client.post("/v1/completions", &body), async {
        until("the request", || async {
            (client.metric("vllm:num_requests_running").await > 0.0).then_some(())
        })
        .await;
        server.stop().await;
    });
    assert_eq!(answer.0.as_u16(), 503);
}

#[tokio::test]
async fn lists_base_and_adapters() {
    let (server, client) = start(&["--model", "llama", "--lora", "ad1", "--lora", "ad2"]).await;
    let models: serde_json::Value = client.get("/v1/models").await.json().await.unwrap();
    let ids: Vec<_> = models["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    assert_eq!(ids, ["llama", "ad1", "ad2"]);
    assert_eq!(models["data"][1]["parent"], "llama");
    server.stop().await;
}
