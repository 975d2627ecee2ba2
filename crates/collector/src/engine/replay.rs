//! Replays: what an engine still has of its batches.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use warmroute_wire::sequence::Frame;
use zeromq::{DealerSocket, Socket, SocketOptions, SocketRecv, SocketSend, ZmqError, ZmqMessage};

use super::socket;
use crate::config::Endpoint;

/// Replayed batches that may wait to be taken: the socket waits beyond that.
const CHANNEL_BATCHES: usize = 64;

/// A replay under way. It ends where it is dropped.
#[derive(Debug)]
pub(super) struct Replay {
    batches: mpsc::Receiver<Reply>,
    task: AbortHandle,
}

/// What a replay brings.
#[derive(Debug)]
pub(super) enum Reply {
    /// A batch.
    Batch(Frame),
    /// The end: in order or not.
    Ended(Result<(), ReplayError>),
}

/// Why a replay did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplayError {
    #[error("no end within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Socket(#[from] ZmqError),
    #[error("a reply that is no batch")]
    Undecodable,
}

// === impl Replay ===

impl Replay {
    /// Asks `endpoint` for its batches from `from` on. All of it may take `limit`.
    ///
    /// The time counts what the engine takes only, not how long the batches wait to be taken.
    pub(super) fn start(endpoint: Endpoint, from: u64, limit: Duration) -> Self {
        let (sender, batches) = mpsc::channel(CHANNEL_BATCHES);
        let task = tokio::spawn(async move {
            let ended = run(&endpoint, from, limit, &sender).await;
            // A receiver that is gone wants nothing more.
            let _ = sender.send(Reply::Ended(ended)).await;
        });
        Self { batches, task: task.abort_handle() }
    }

    /// Waits for what comes next.
    pub(super) async fn next(&mut self) -> Reply {
        self.batches.recv().await.unwrap_or(Reply::Ended(Err(ReplayError::Undecodable)))
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    endpoint: &Endpoint,
    from: u64,
    limit: Duration,
    sender: &mpsc::Sender<Reply>,
) -> Result<(), ReplayError> {
    let mut left = limit;
    let mut options = SocketOptions::default();
    options.connect_timeout(limit);
    let mut dealer = DealerSocket::with_options(options);
    let request = async {
        dealer.connect(&endpoint.to_string()).await?;
        // A ROUTER takes exactly an empty delimiter, as a REQ socket would send it, and the number.
        let mut request = ZmqMessage::from(Bytes::new());
        request.push_back(Bytes::copy_from_slice(&from.to_be_bytes()));
        dealer.send(request).await
    };
    spend(&mut left, limit, request).await??;
    loop {
        let message = spend(&mut left, limit, dealer.recv()).await??;
        match socket::parse(&message) {
            Some(None) => return Ok(()),
            None => return Err(ReplayError::Undecodable),
            Some(Some(frame)) => {
                if sender.send(Reply::Batch(frame)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits for a step and takes its time off what is left.
async fn spend<T>(
    left: &mut Duration,
    limit: Duration,
    step: impl Future<Output = T>,
) -> Result<T, ReplayError> {
    let start = tokio::time::Instant::now();
    let result = timeout(*left, step).await.map_err(|_| ReplayError::Timeout(limit));
    *left = left.saturating_sub(start.elapsed());
    result
}
