//! The replay endpoint.
//!
//! ```text
//! request   [identity, "", start seq]
//! reply     [identity, "", topic, seq, payload]  for each kept batch      without topic in the array format
//!           [identity, "", "", ff ff ff ff ff ff ff ff, ""]  at the end
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use tokio::task::JoinHandle;
use zeromq::{RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::replay_buffer::ReplayBuffer;
use crate::config::EventFormat;

const END_SEQ: [u8; 8] = [0xff; 8];

/// A requester that takes no frame for this long is given up, so that it cannot hold up others.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers replay requests.
pub(super) struct ReplayServer {
    pub(super) buffer: Arc<ReplayBuffer>,
    pub(super) topic: Bytes,
    pub(super) format: EventFormat,
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
struct ReplayRequest {
    identity: Bytes,
    start: u64,
}

// === impl ReplayServer ===

impl ReplayServer {
    /// Binds the ROUTER socket and starts to answer. Returns the endpoint that was bound, and the task.
    pub(super) async fn start(self, endpoint: &str) -> anyhow::Result<(String, JoinHandle<()>)> {
        let mut socket = RouterSocket::new();
        let bound = socket
            .bind(endpoint)
            .await
            .with_context(|| format!("cannot bind the replay endpoint {endpoint}"))?;
        Ok((bound.to_string(), tokio::spawn(self.answer_all(socket))))
    }

    async fn answer_all(self, mut socket: RouterSocket) {
        loop {
            let message = match socket.recv().await {
                Ok(message) => message,
                Err(error) => {
                    tracing::warn!(%error, "cannot receive a replay request");
                    return;
                }
            };
            match ReplayRequest::parse(message) {
                Some(request) => self.answer(&mut socket, &request).await,
                None => tracing::warn!("ignored a replay request of a wrong shape"),
            }
        }
    }

    async fn answer(&self, socket: &mut RouterSocket, request: &ReplayRequest) {
        for batch in self.buffer.since(request.start) {
            let seq = Bytes::copy_from_slice(&batch.seq.to_be_bytes());
            let reply = self.reply(request, self.topic.clone(), seq, batch.payload);
            if !send(socket, reply).await {
                return;
            }
        }
        let end = self.reply(request, Bytes::new(), Bytes::from_static(&END_SEQ), Bytes::new());
        send(socket, end).await;
    }

    fn reply(&self, request: &ReplayRequest, topic: Bytes, seq: Bytes, payload: Bytes) -> ZmqMessage {
        let mut message = ZmqMessage::from(request.identity.clone());
        message.push_back(Bytes::new());
        if self.format == EventFormat::Map {
            message.push_back(topic);
        }
        message.push_back(seq);
        message.push_back(payload);
        message
    }
}

/// Returns whether it could be sent.
async fn send(socket: &mut RouterSocket, message: ZmqMessage) -> bool {
    match tokio::time::timeout(SEND_TIMEOUT, socket.send(message)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!(%error, "the requester of a replay is gone");
            false
        }
        Err(_) => {
            tracing::warn!("gave up a replay: the requester does not read");
            false
        }
    }
}

// === impl ReplayRequest ===

impl ReplayRequest {
    fn parse(message: ZmqMessage) -> Option<Self> {
        let [identity, delimiter, start] = <[Bytes; 3]>::try_from(message.into_vec()).ok()?;
        let start = <[u8; 8]>::try_from(&*start).ok()?;
        delimiter.is_empty().then_some(Self { identity, start: u64::from_be_bytes(start) })
    }
}
