//! A fake engine: vLLM's publisher, with a mind of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// How the engine answers a replay request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Replays {
    /// As vLLM up to 0.25: no topic.
    WithoutTopic,
    /// As vLLM since 0.26.
    WithTopic,
    /// Not at all.
    Never,
}

/// The engine's publisher.
pub struct FakeEngine {
    publisher: Option<PubSocket>,
    router: Option<JoinHandle<()>>,
    pub events: String,
    pub replay: String,
    seq: u64,
    buffer: Buffer,
    /// The numbers that replays were asked from.
    pub asked: Arc<Mutex<Vec<u64>>>,
    replays: Arc<Mutex<Replays>>,
}

type Buffer = Arc<Mutex<VecDeque<(u64, Bytes)>>>;

// === impl FakeEngine ===

impl FakeEngine {
    pub async fn start(replays: Replays) -> Self {
        Self::start_at(replays, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0").await
    }

    pub async fn start_at(replays: Replays, events: &str, replay: &str) -> Self {
        let mut engine = Self {
            publisher: None,
            router: None,
            events: events.to_owned(),
            replay: replay.to_owned(),
            seq: 0,
            buffer: Buffer::default(),
            asked: Arc::default(),
            replays: Arc::new(Mutex::new(replays)),
        };
        engine.bind().await;
        engine
    }

    async fn bind(&mut self) {
        let mut publisher = PubSocket::new();
        self.events = publisher.bind(&self.events).await.unwrap().to_string();
        self.publisher = Some(publisher);
        let mut router = RouterSocket::new();
        self.replay = router.bind(&self.replay).await.unwrap().to_string();
        let serving =
            serve(router, Arc::clone(&self.buffer), Arc::clone(&self.asked), Arc::clone(&self.replays));
        self.router = Some(tokio::spawn(serving));
    }

    /// The process dies: connections are closed, and nothing answers.
    pub async fn die(&mut self) {
        if let Some(publisher) = self.publisher.take() {
            publisher.close().await;
        }
        if let Some(router) = self.router.take() {
            router.abort();
            let _ = router.await;
        }
    }

    /// Another process at the same endpoints: nothing cached, numbers from 0.
    pub async fn come_back(&mut self) {
        self.seq = 0;
        self.buffer.lock().unwrap().clear();
        for _ in 0..200 {
            // The old listener may still be closing.
            if std::net::TcpListener::bind(self.events.trim_start_matches("tcp://")).is_ok()
                && std::net::TcpListener::bind(self.replay.trim_start_matches("tcp://")).is_ok()
            {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        self.bind().await;
    }

    pub fn set_replays(&self, replays: Replays) {
        *self.replays.lock().unwrap() = replays;
    }

    /// Numbers go back to 0 without a word, as after a restart that no connection noticed.
    pub fn restart_unnoticed(&mut self) {
        self.seq = 0;
        self.buffer.lock().unwrap().clear();
    }

    /// An entry of the collector's `workers`.
    pub fn worker(&self, address: &str, with_replay: bool) -> String {
        let replay = if with_replay { format!(", replay: '{}'", self.replay) } else { String::new() };
        format!("{{address: '{address}', events: '{}'{replay}}}", self.events)
    }

    /// Publishes a batch.
    pub async fn publish(&mut self, events: Value) {
        let message = self.keep(&events);
        self.publisher.as_mut().unwrap().send(message).await.unwrap();
    }

    /// Publishes a batch that the live stream loses.
    pub fn lose(&mut self, events: &Value) {
        self.keep(events);
    }

    /// Forgets the batches kept for replays.
    pub fn forget(&mut self) {
        self.buffer.lock().unwrap().clear();
    }

    /// Forgets the batches kept for replays, but for the last.
    pub fn forget_all_but_the_last(&mut self) {
        let mut buffer = self.buffer.lock().unwrap();
        let first = buffer.len().saturating_sub(1);
        buffer.drain(..first);
    }

    /// Sends frames as they are.
    pub async fn send_raw(&mut self, frames: &[&[u8]]) {
        self.publisher.as_mut().unwrap().send(message_of(frames)).await.unwrap();
    }

    fn keep(&mut self, events: &Value) -> ZmqMessage {
        let payload = Bytes::from(rmp_serde::to_vec(&json!([self.time(), events, 0])).unwrap());
        let message = message_of(&[b"topic", &self.seq.to_be_bytes(), &payload]);
        self.buffer.lock().unwrap().push_back((self.seq, payload));
        self.seq += 1;
        message
    }

    /// Batches hold the time, so that no two are alike.
    fn time(&self) -> f64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        if let Some(router) = &self.router {
            router.abort();
        }
    }
}

async fn serve(
    mut router: RouterSocket,
    buffer: Buffer,
    asked: Arc<Mutex<Vec<u64>>>,
    replays: Arc<Mutex<Replays>>,
) {
    while let Ok(request) = router.recv().await {
        let frames = request.into_vec();
        let [identity, delimiter, start] = &*frames else { continue };
        assert!(delimiter.is_empty());
        let start = u64::from_be_bytes(start.as_ref().try_into().unwrap());
        asked.lock().unwrap().push(start);
        let shape = *replays.lock().unwrap();
        if shape == Replays::Never {
            continue;
        }
        let kept: Vec<_> = buffer.lock().unwrap().iter().filter(|(seq, _)| *seq >= start).cloned().collect();
        for (seq, payload) in kept {
            reply(&mut router, shape, identity, b"topic", seq, &payload).await;
        }
        reply(&mut router, shape, identity, b"", u64::MAX, b"").await;
    }
}

async fn reply(
    router: &mut RouterSocket,
    shape: Replays,
    identity: &[u8],
    topic: &[u8],
    seq: u64,
    payload: &[u8],
) {
    let seq = seq.to_be_bytes();
    let message = match shape {
        Replays::WithTopic => message_of(&[identity, b"", topic, &seq, payload]),
        Replays::WithoutTopic | Replays::Never => message_of(&[identity, b"", &seq, payload]),
    };
    // Whoever asked may be gone.
    let _ = router.send(message).await;
}

fn message_of(frames: &[&[u8]]) -> ZmqMessage {
    let frames: VecDeque<Bytes> = frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect();
    ZmqMessage::try_from(frames).unwrap()
}

/// A store of blocks of 2 tokens: block `n` has the tokens `[n, n]` and the hash `n + 1`.
pub fn stored(parent: Option<u64>, blocks: &[u64]) -> Value {
    let hashes: Vec<_> = blocks.iter().map(|block| block + 1).collect();
    let tokens: Vec<_> = blocks.iter().flat_map(|block| [block, block]).collect();
    json!({
        "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent.map(|block| block + 1),
        "token_ids": tokens, "block_size": 2, "lora_id": null, "medium": "GPU", "lora_name": null,
    })
}

/// A removal of blocks of [`stored`].
pub fn removed(blocks: &[u64]) -> Value {
    let hashes: Vec<_> = blocks.iter().map(|block| block + 1).collect();
    json!({"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"})
}

/// The tokens of blocks of [`stored`].
pub fn tokens(blocks: &[u64]) -> Vec<u32> {
    blocks.iter().flat_map(|block| [*block as u32; 2]).collect()
}
