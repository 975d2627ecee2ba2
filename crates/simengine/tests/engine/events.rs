//! The live event stream.

use serde_json::json;

use crate::support::{Subscriber, events_of, start, tokens};

const EVENTS: [&str; 2] = ["--events", "tcp://127.0.0.1:0"];

#[tokio::test]
async fn announces_stores_with_parent_keys_and_adapter() {
    let (server, client) = start(&[&EVENTS[..], &["--lora", "ad1", "--topic", "kv@sim"]].concat()).await;
    let mut subscriber = Subscriber::connect(events_of(server.addresses()), "kv@", &client).await;
    let body = json!({ "model": "ad1", "prompt": tokens(0, 10), "max_tokens": 1, "cache_salt": "tenant" });
    client.complete(&body).await;
    let first = subscriber.next().await;
    assert_eq!(first.topic, "kv@sim");
    let [store] = &first.events()[..] else { panic!("one event") };
    assert_eq!(store["type"], "BlockStored");
    assert_eq!(store["block_hashes"].as_array().unwrap().len(), 2);
    assert!(store["block_hashes"][0].is_u64());
    assert!(store["parent_block_hash"].is_null());
    assert_eq!(store["token_ids"], json!(tokens(0, 8)));
    assert_eq!(store["extra_keys"], json!([["ad1", "tenant"], ["ad1"]]));
    assert_eq!((&store["lora_id"], &store["lora_name"]), (&json!(1), &json!("ad1")));
    assert_eq!((&store["block_size"], &store["medium"]), (&json!(4), &json!("GPU")));
    let body = json!({ "model": "ad1", "prompt": tokens(0, 14), "max_tokens": 1, "cache_salt": "tenant" });
    client.complete(&body).await;
    let second = subscriber.next().await;
    assert_eq!(second.seq, first.seq + 1);
    assert_eq!(second.events()[0]["parent_block_hash"], store["block_hashes"][1]);
    server.stop().await;
}

#[tokio::test]
async fn announces_generated_blocks_as_they_fill() {
    let (server, client) = start(&EVENTS).await;
    let mut subscriber = Subscriber::connect(events_of(server.addresses()), "", &client).await;
    let body = json!({ "prompt": tokens(0, 6), "max_tokens": 8, "return_token_ids": true });
    let answer = client.complete(&body).await;
    let events = subscriber.events(3).await;
    let output: Vec<_> = answer["choices"][0]["token_ids"].as_array().unwrap().clone();
    // Blocks of 4: prompt, prompt + 2 output tokens, 4 output tokens. The last output token is not computed.
    assert_eq!(events[1]["token_ids"], json!([4, 5, output[0], output[1]]));
    assert_eq!(events[2]["token_ids"], json!(output[2..6]));
    assert_eq!(events[2]["parent_block_hash"], events[1]["block_hashes"][0]);
    server.stop().await;
}

#[tokio::test]
async fn evicts_tails_first_and_removes_before_it_stores() {
    let (server, client) = start(&[&EVENTS[..], &["--num-blocks", "4"]].concat()).await;
    let mut subscriber = Subscriber::connect(events_of(server.addresses()), "", &client).await;
    client.cached_tokens(&tokens(0, 16)).await;
    let full = subscriber.next().await.events();
    let hashes = full.last().unwrap()["block_hashes"].as_array().unwrap().clone();
    client.cached_tokens(&tokens(100, 12)).await;
    let events = subscriber.next().await.events();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["BlockRemoved", "BlockRemoved", "BlockRemoved", "BlockStored"]);
    let removed: Vec<_> = events[..3].iter().map(|event| event["block_hashes"].clone()).collect();
    assert_eq!(removed, [3, 2, 1].map(|block: usize| json!([hashes[block]])));
    assert_eq!(client.cached_tokens(&tokens(0, 16)).await, 4, "the head is still there");
    server.stop().await;
}

#[tokio::test]
async fn a_clear_goes_out_with_the_next_batch() {
    let (server, client) = start(&EVENTS).await;
    let mut subscriber = Subscriber::connect(events_of(server.addresses()), "", &client).await;
    client.cached_tokens(&tokens(0, 9)).await;
    let before = subscriber.next().await;
    let (status, answer) = client.post("/reset_prefix_cache", &json!(null)).await;
    assert!(status.is_success(), "{answer}");
    assert_eq!(client.cached_tokens(&tokens(0, 9)).await, 0);
    let after = subscriber.next().await;
    assert_eq!(after.seq, before.seq + 1);
    let types: Vec<_> = after.events().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(types, ["AllBlocksCleared", "BlockStored"]);
    server.stop().await;
}

#[tokio::test]
async fn the_array_format_has_every_field() {
    let (server, client) = start(&[&EVENTS[..], &["--event-format", "array"]].concat()).await;
    let mut subscriber = Subscriber::connect(events_of(server.addresses()), "", &client).await;
    client.cached_tokens(&tokens(0, 5)).await;
    let [store] = &subscriber.next().await.events()[..] else { panic!("one event") };
    let hash = store[1][0].clone();
    assert!(hash.is_u64());
    let fields = json!([
        "BlockStored",
        [hash],
        null,
        [0, 1, 2, 3],
        4,
        null,
        "GPU",
        null,
        [null],
        0,
        "full_attention",
        null
    ]);
    assert_eq!(store, &fields);
    server.stop().await;
}

#[tokio::test]
async fn an_engine_without_events_serves() {
    let (server, client) = start(&[]).await;
    assert_eq!(server.addresses().events, None);
    client.cached_tokens(&tokens(0, 9)).await;
    let sources: serde_json::Value = client.get("/kv_event_sources").await.json().await.unwrap();
    assert_eq!(sources, json!({}));
    server.stop().await;
}

#[tokio::test]
async fn tells_where_its_events_are() {
    let flags =
        [&EVENTS[..], &["--replay", "tcp://127.0.0.1:0", "--topic", "kv", "--replay-buffer", "7"]].concat();
    let (server, client) = start(&flags).await;
    let sources: serde_json::Value = client.get("/kv_event_sources").await.json().await.unwrap();
    let source = &sources["0"];
    assert_eq!(source["endpoint"], json!(server.addresses().events));
    assert_eq!(source["replay_endpoint"], json!(server.addresses().replay));
    assert_eq!((&source["topic"], &source["buffer_steps"]), (&json!("kv"), &json!(7)));
    server.stop().await;
}
