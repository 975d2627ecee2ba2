//! KV events on vLLM's wire: a live PUB stream and a replay ROUTER.
//!
//! ```text
//! engine -> Publisher -> encode -> replay buffer --------------> ROUTER (on request)
//!                           '----> bounded queue -> live task -> PUB: [topic, seq u64 big-endian, payload]
//! ```
//!
//! [`Publisher::publish`] never waits. Nothing is published at the start: no hello and no clear, as in vLLM.

mod encode;
mod live;
mod replay;
mod replay_buffer;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::encode::Encoder;
use self::replay::ReplayServer;
use self::replay_buffer::{Batch, ReplayBuffer};
use crate::cache::CacheEvent;
use crate::config::Config;

/// Numbers, encodes and hands out the batches of one engine.
#[derive(Debug)]
pub struct Publisher {
    encoder: Encoder,
    next_seq: u64,
    buffer: Arc<ReplayBuffer>,
    live: mpsc::Sender<Batch>,
}

/// The sockets behind a [`Publisher`].
#[derive(Debug)]
pub struct EventSockets {
    /// The PUB endpoint that was bound.
    pub events: String,
    /// The ROUTER endpoint that was bound.
    pub replay: Option<String>,
    live_task: JoinHandle<()>,
    replay_task: Option<JoinHandle<()>>,
}

/// Binds the sockets that `config` names; `None` if it names no event endpoint.
///
/// # Errors
/// When an endpoint cannot be bound.
pub async fn start(config: &Config) -> anyhow::Result<Option<(Publisher, EventSockets)>> {
    let Some(endpoint) = &config.events else { return Ok(None) };
    let topic = Bytes::from(config.topic.clone());
    let buffer = Arc::new(ReplayBuffer::new(config.replay_buffer));
    let (live, events, live_task) = live::start(endpoint, topic.clone()).await?;
    let (replay, replay_task) = match &config.replay {
        Some(endpoint) => {
            let server = ReplayServer { buffer: buffer.clone(), topic, format: config.event_format };
            let (bound, task) = server.start(endpoint).await?;
            (Some(bound), Some(task))
        }
        None => (None, None),
    };
    let encoder = Encoder {
        event_format: config.event_format,
        hash_format: config.hash_format,
        block_size: config.block_tokens().get(),
    };
    let publisher = Publisher { encoder, next_seq: 0, buffer, live };
    Ok(Some((publisher, EventSockets { events, replay, live_task, replay_task })))
}

// === impl Publisher ===

impl Publisher {
    /// Publishes one batch. Never waits: a batch for which the queue has no room is dropped from the live stream, and
    /// stays in the replay buffer.
    pub fn publish(&mut self, events: &[CacheEvent]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let payload = match self.encoder.encode(now, events) {
            Ok(payload) => Bytes::from(payload),
            Err(error) => {
                tracing::error!(%error, "cannot encode a batch");
                return;
            }
        };
        let batch = Batch { seq: self.next_seq, payload };
        self.next_seq += 1;
        self.buffer.push(batch.clone());
        if self.live.try_send(batch).is_err() {
            tracing::warn!("dropped a batch from the live stream: its queue is full");
        }
    }
}

// === impl EventSockets ===

impl EventSockets {
    /// Closes the sockets. The publisher must be gone.
    pub async fn stop(self) {
        if let Some(task) = self.replay_task {
            task.abort();
            let _aborted = task.await;
        }
        if let Err(error) = self.live_task.await {
            tracing::warn!(%error, "the event task failed");
        }
    }
}
