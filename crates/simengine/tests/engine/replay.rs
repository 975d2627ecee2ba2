//! The replay endpoint.

use bytes::Bytes;
use serde_json::json;

use crate::support::{Replayer, Subscriber, events_of, start, tokens};

const ENDPOINTS: [&str; 4] = ["--events", "tcp://127.0.0.1:0", "--replay", "tcp://127.0.0.1:0"];

const END: [u8; 8] = [0xff; 8];

fn seq(frame: &Bytes) -> u64 {
    u64::from_be_bytes((**frame).try_into().unwrap())
}

#[tokio::test]
async fn map_replies_carry_the_topic_and_repeat_the_live_batches() {
    let (server, client) = start(&[&ENDPOINTS[..], &["--topic", "kv@sim"]].concat()).await;
    let mut subscriber = Subscriber::connect(events_of(server.addresses()), "", &client).await;
    let mut live = Vec::new();
    for first in [0, 100, 200] {
        client.cached_tokens(&tokens(first, 9)).await;
        live.push(subscriber.next().await);
    }
    let mut replayer = Replayer::connect(server.addresses().replay.as_deref().unwrap()).await;
    let replies = replayer.replay(live[0].seq).await;
    let [batches @ .., end] = &replies[..] else { panic!("no replies") };
    assert_eq!(end, &[&b""[..], b"", &END, b""]);
    assert_eq!(batches.len(), 3);
    for (reply, live) in batches.iter().zip(&live) {
        let [delimiter, topic, number, payload] = &reply[..] else { panic!("four frames: {reply:?}") };
        assert!(delimiter.is_empty());
        assert_eq!((topic, seq(number), payload), (&live.topic, live.seq, &live.payload));
    }
    let all = replayer.replay(0).await;
    let seqs: Vec<u64> = all[..all.len() - 1].iter().map(|reply| seq(&reply[2])).collect();
    assert_eq!(seqs, (0..=live[2].seq).collect::<Vec<_>>(), "numbers start at 0 and have no gap");
    server.stop().await;
}

#[tokio::test]
async fn array_replies_carry_no_topic() {
    let (server, client) =
        start(&[&ENDPOINTS[..], &["--event-format", "array", "--topic", "kv"]].concat()).await;
    client.cached_tokens(&tokens(0, 9)).await;
    let mut replayer = Replayer::connect(server.addresses().replay.as_deref().unwrap()).await;
    let replies = replayer.replay(0).await;
    let [batch, end] = &replies[..] else { panic!("one batch and the end") };
    assert_eq!((batch.len(), seq(&batch[1])), (3, 0));
    assert_eq!(end, &[&b""[..], &END, b""]);
    server.stop().await;
}

#[tokio::test]
async fn a_replay_past_the_end_gives_the_end_alone() {
    let (server, client) = start(&ENDPOINTS).await;
    client.cached_tokens(&tokens(0, 9)).await;
    let mut replayer = Replayer::connect(server.addresses().replay.as_deref().unwrap()).await;
    assert_eq!(replayer.replay(1).await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn old_batches_leave_the_buffer() {
    let (server, client) = start(&[&ENDPOINTS[..], &["--replay-buffer", "2"]].concat()).await;
    for first in [0, 100, 200] {
        client.cached_tokens(&tokens(first, 9)).await;
    }
    let mut replayer = Replayer::connect(server.addresses().replay.as_deref().unwrap()).await;
    let replies = replayer.replay(0).await;
    assert_eq!(replies.len(), 3);
    assert_eq!(seq(&replies[0][2]), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_request_of_a_wrong_shape_is_ignored() {
    let (server, client) = start(&ENDPOINTS).await;
    let body = json!({ "prompt": tokens(0, 9), "max_tokens": 1 });
    client.complete(&body).await;
    let mut replayer = Replayer::connect(server.addresses().replay.as_deref().unwrap()).await;
    replayer.send(vec![Bytes::new(), Bytes::from_static(b"short")]).await;
    replayer.send(vec![Bytes::from_static(&[0; 8])]).await;
    assert_eq!(replayer.replay(0).await.len(), 2);
    server.stop().await;
}
