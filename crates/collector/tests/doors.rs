//! Engines that dial: llm-d's simulator, several of them through one door.
#![allow(clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests may panic")]

mod support;

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};
use support::engine::{removed, stored, tokens};
use support::mirror::Mirror;
use support::{Collector, eventually};
use zeromq::{PubSocket, Socket, SocketSend, ZmqMessage};

const A: &str = "10.0.0.1:8000";
const B: &str = "10.0.0.2:8000";

/// An engine that dials.
struct Dialling {
    socket: PubSocket,
    topic: String,
    seq: u64,
}

// === impl Dialling ===

impl Dialling {
    async fn dial(endpoint: &str, topic: &str) -> Self {
        let mut socket = PubSocket::new();
        socket.connect(endpoint).await.unwrap();
        // As the simulator does: from 1.
        Self { socket, topic: topic.to_owned(), seq: 1 }
    }

    async fn publish(&mut self, events: Value) {
        let payload = rmp_serde::to_vec(&json!([1.5, events, 0])).unwrap();
        let frames = [self.topic.as_bytes(), &self.seq.to_be_bytes(), &payload];
        let frames: VecDeque<Bytes> = frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect();
        self.socket.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
        self.seq += 1;
    }

    /// Publishes nothing until the collector hears it.
    async fn is_heard(&mut self, collector: &Collector, worker: &str) {
        let label = format!("worker=\"{worker}\"");
        let before = collector.metric("frames_total", &label).await;
        eventually("a live message", async || {
            self.publish(json!([])).await;
            collector.metric("frames_total", &label).await > before
        })
        .await;
    }
}

fn free_endpoint() -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("tcp://127.0.0.1:{port}")
}

async fn collector_of(endpoint: &str, workers: &[&str]) -> (Collector, Mirror) {
    let workers: Vec<_> =
        workers.iter().map(|worker| format!("{{address: '{worker}', events: 'bind {endpoint}'}}")).collect();
    let collector = Collector::start(&workers, "engine: llmd-sim").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mirror = Mirror::new(&collector);
    (collector, mirror)
}

#[tokio::test]
async fn engines_behind_one_door_are_told_apart_by_their_topics() {
    let endpoint = free_endpoint();
    let (collector, mut mirror) = collector_of(&endpoint, &[A, B]).await;
    let mut a = Dialling::dial(&endpoint, &format!("kv@{A}@m")).await;
    let mut b = Dialling::dial(&endpoint, &format!("kv@{B}@m")).await;
    let mut stranger = Dialling::dial(&endpoint, "kv@10.9.9.9:1@m").await;
    a.is_heard(&collector, A).await;
    b.is_heard(&collector, B).await;
    // Parent 0 is none in arrays.
    a.publish(json!([["BlockStored", [2], 0, [1, 1], 2, null, "GPU", null]])).await;
    b.publish(json!([stored(None, &[1, 2])])).await;
    stranger.publish(json!([stored(None, &[1, 2, 3])])).await;
    eventually("both", async || {
        (mirror.depth(A, &tokens(&[1, 2, 3])).await, mirror.depth(B, &tokens(&[1, 2, 3])).await) == (1, 2)
    })
    .await;
    // One hangs up: what the door's others hold is in doubt, and theirs again once they tell it anew.
    drop(a);
    eventually("reset", async || mirror.depth(B, &tokens(&[1, 2])).await == 0).await;
    b.publish(json!([stored(None, &[1])])).await;
    eventually("stored anew", async || mirror.depth(B, &tokens(&[1, 2])).await == 1).await;
    let mut a = Dialling::dial(&endpoint, &format!("kv@{A}@m")).await;
    a.is_heard(&collector, A).await;
    assert_eq!(mirror.depth(A, &tokens(&[1])).await, 0);
    collector.stop().await;
}

#[tokio::test]
async fn a_door_of_one_worker_takes_any_topic_that_names_no_other() {
    let endpoint = free_endpoint();
    let (collector, mut mirror) = collector_of(&endpoint, &[A]).await;
    let mut engine = Dialling::dial(&endpoint, "").await;
    engine.is_heard(&collector, A).await;
    assert_eq!(collector.metric("worker_connected", "").await, 1.0);
    engine.publish(json!([stored(None, &[1, 2]), removed(&[2])])).await;
    eventually("stored", async || mirror.depth(A, &tokens(&[1, 2])).await == 1).await;
    collector.stop().await;
}
