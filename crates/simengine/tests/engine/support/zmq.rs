//! Real ZMQ peers: a subscriber and a requester of replays.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

use super::{Client, DEADLINE, tokens};

/// One live batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Batch {
    pub(crate) topic: Bytes,
    pub(crate) seq: u64,
    pub(crate) payload: Bytes,
}

/// A SUB socket whose subscription has arrived.
pub(crate) struct Subscriber {
    socket: SubSocket,
}

/// A DEALER socket at the replay endpoint.
pub(crate) struct Replayer {
    socket: DealerSocket,
}

// === impl Batch ===

impl Batch {
    fn parse(message: ZmqMessage) -> Self {
        let [topic, seq, payload] = <[Bytes; 3]>::try_from(message.into_vec()).expect("three frames");
        Self { topic, seq: u64::from_be_bytes((*seq).try_into().expect("8 bytes")), payload }
    }

    /// The events, as JSON.
    pub(crate) fn events(&self) -> Vec<Value> {
        let batch: Value = rmp_serde::from_slice(&self.payload).expect("msgpack");
        assert!(batch[0].is_f64(), "a timestamp");
        assert_eq!(batch[2], 0, "the rank");
        batch[1].as_array().expect("events").clone()
    }
}

// === impl Subscriber ===

impl Subscriber {
    /// Subscribes, and runs prompts until one is heard of: a subscription arrives some time after the connection.
    pub(crate) async fn connect(endpoint: &str, topic: &str, client: &Client) -> Self {
        let mut socket = SubSocket::new();
        socket.connect(endpoint).await.unwrap();
        socket.subscribe(topic).await.unwrap();
        let mut subscriber = Self { socket };
        let heard = async {
            for first in (1_000_000..).step_by(100) {
                client.cached_tokens(&tokens(first, 4)).await;
                // An older prompt's batch may come late: only that of the newest prompt leaves none behind.
                while let Some(batch) = subscriber.try_next().await {
                    if batch.events().iter().any(|event| event.to_string().contains(&first.to_string())) {
                        return;
                    }
                }
            }
        };
        timeout(DEADLINE, heard).await.expect("the subscription arrives");
        subscriber
    }

    pub(crate) async fn next(&mut self) -> Batch {
        self.receive(DEADLINE).await.expect("a batch comes in time")
    }

    /// A batch, if one comes soon.
    pub(crate) async fn try_next(&mut self) -> Option<Batch> {
        self.receive(Duration::from_millis(50)).await
    }

    async fn receive(&mut self, patience: Duration) -> Option<Batch> {
        let message = timeout(patience, self.socket.recv()).await.ok()?;
        Some(Batch::parse(message.unwrap()))
    }

    /// The events of the next batches, until `wanted` have come.
    pub(crate) async fn events(&mut self, wanted: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < wanted {
            events.extend(self.next().await.events());
        }
        events
    }
}

// === impl Replayer ===

impl Replayer {
    pub(crate) async fn connect(endpoint: &str) -> Self {
        let mut socket = DealerSocket::new();
        socket.connect(endpoint).await.unwrap();
        Self { socket }
    }

    /// Sends raw frames.
    pub(crate) async fn send(&mut self, frames: Vec<Bytes>) {
        self.socket.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
    }

    /// All replies to a request from `start` on, as raw frames, with the end marker.
    pub(crate) async fn replay(&mut self, start: u64) -> Vec<Vec<Bytes>> {
        self.send(vec![Bytes::new(), Bytes::copy_from_slice(&start.to_be_bytes())]).await;
        let mut replies = Vec::new();
        loop {
            let reply = timeout(DEADLINE, self.socket.recv())
                .await
                .expect("a reply comes in time")
                .unwrap()
                .into_vec();
            let is_end = reply[reply.len() - 2] == [0xff; 8][..];
            replies.push(reply);
            if is_end {
                return replies;
            }
        }
    }
}
