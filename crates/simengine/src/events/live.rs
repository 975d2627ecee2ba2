//! The live stream: a bounded queue and the task that empties it into the PUB socket.

use anyhow::Context;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use zeromq::{PubSocket, Socket, SocketSend, ZmqMessage};

use super::replay_buffer::Batch;

/// Batches that may wait for the socket; vLLM's default. When it is full, batches are dropped (a consumer sees the gap
/// and asks for a replay): serving never waits for a subscriber.
const QUEUE_BATCHES: usize = 100_000;

/// Binds the PUB socket and starts its task. Returns where batches go, the endpoint that was bound, and the task, which
/// ends when the sender is gone.
pub(super) async fn start(
    endpoint: &str,
    topic: Bytes,
) -> anyhow::Result<(mpsc::Sender<Batch>, String, JoinHandle<()>)> {
    let mut socket = PubSocket::new();
    let bound =
        socket.bind(endpoint).await.with_context(|| format!("cannot bind the event endpoint {endpoint}"))?;
    let (batches, queue) = mpsc::channel(QUEUE_BATCHES);
    let task = tokio::spawn(send_all(socket, topic, queue));
    Ok((batches, bound.to_string(), task))
}

async fn send_all(mut socket: PubSocket, topic: Bytes, mut queue: mpsc::Receiver<Batch>) {
    while let Some(batch) = queue.recv().await {
        let mut message = ZmqMessage::from(topic.clone());
        message.push_back(Bytes::copy_from_slice(&batch.seq.to_be_bytes()));
        message.push_back(batch.payload);
        if let Err(error) = socket.send(message).await {
            tracing::warn!(%error, seq = batch.seq, "cannot publish a batch");
        }
    }
    socket.close().await;
}
