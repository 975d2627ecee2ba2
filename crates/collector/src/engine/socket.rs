//! Live events: a SUB socket that is known to be connected.

use std::time::Duration;

use bytes::Bytes;
use warmroute_wire::Message;
use warmroute_wire::sequence::Frame;
use zeromq::{Socket, SocketEvent, SocketOptions, SocketRecv, SubSocket, ZmqError, ZmqMessage};

use super::MAX_PAYLOAD_BYTES;
use crate::config::Endpoint;

/// One attempt to connect may take this long. The crate itself tries again meanwhile where a connection is refused.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A subscription to one endpoint.
pub(super) struct EventSocket {
    socket: SubSocket,
    monitor: Monitor,
}

/// What a subscription brings.
#[derive(Debug)]
pub(super) enum Received {
    /// A batch, and its topic.
    Batch { frame: Frame, topic: Bytes },
    /// A message that is none of ours.
    Undecodable,
    /// The connection is lost.
    Lost,
}

type Monitor = futures_channel::mpsc::Receiver<SocketEvent>;

// === impl EventSocket ===

impl EventSocket {
    /// Listens for engines that dial, and subscribes to every topic of theirs.
    pub(super) async fn bind(endpoint: &Endpoint) -> Result<Self, ZmqError> {
        let mut socket = SubSocket::new();
        let monitor = socket.monitor();
        socket.subscribe("").await?;
        socket.bind(&endpoint.to_string()).await?;
        Ok(Self { socket, monitor })
    }

    /// Connects and subscribes to every topic.
    ///
    /// The crate would reconnect by itself, but up to 30 s late and without telling; here a lost connection ends the
    /// socket, so that whoever reads it knows that batches may be missing.
    pub(super) async fn connect(endpoint: &Endpoint) -> Result<Self, ZmqError> {
        let mut options = SocketOptions::default();
        options.connect_timeout(CONNECT_TIMEOUT);
        let mut socket = SubSocket::with_options(options);
        let monitor = socket.monitor();
        socket.subscribe("").await?;
        socket.connect(&endpoint.to_string()).await?;
        Ok(Self { socket, monitor })
    }

    /// Waits for what comes next. Nothing is lost where the future is dropped early.
    pub(super) async fn receive(&mut self) -> Received {
        loop {
            tokio::select! {
                biased;
                message = self.socket.recv() => return match message {
                    Ok(message) => read(message),
                    Err(_) => Received::Lost,
                },
                event = self.monitor.recv() => match event {
                    Ok(SocketEvent::Disconnected(_) | SocketEvent::Closed) | Err(_) => return Received::Lost,
                    Ok(_) => {}
                },
            }
        }
    }
}

impl EventSocket {
    /// Waits for what comes next to a socket that was bound; none where it has failed. A peer that is lost does not end it.
    pub(super) async fn receive_any(&mut self) -> Option<Received> {
        loop {
            tokio::select! {
                biased;
                message = self.socket.recv() => return message.ok().map(read),
                event = self.monitor.recv() => match event {
                    Ok(SocketEvent::Disconnected(_)) => return Some(Received::Lost),
                    Ok(SocketEvent::Closed) | Err(_) => return None,
                    Ok(_) => {}
                },
            }
        }
    }
}

fn read(message: ZmqMessage) -> Received {
    match parse(&message) {
        Some(Some(frame)) => {
            let topic = (message.len() > 2).then(|| message.into_vec().swap_remove(0));
            Received::Batch { frame, topic: topic.unwrap_or_default() }
        }
        // An end marker has no place in the live stream.
        Some(None) | None => Received::Undecodable,
    }
}

/// A message's batch, or its end marker (`Some(None)`); none if it is neither.
pub(super) fn parse(message: &ZmqMessage) -> Option<Option<Frame>> {
    let frames: Vec<&Bytes> = message.iter().collect();
    match Message::parse(&frames).ok()? {
        Message::End => Some(None),
        Message::Batch { seq, .. } => {
            // One that is too large keeps its number, as one that cannot be read does: no replay would bring it either.
            let fits = |payload: &&&Bytes| payload.len() <= MAX_PAYLOAD_BYTES;
            let payload = frames.last().filter(fits).map(|payload| Bytes::clone(payload)).unwrap_or_default();
            Some(Some(Frame { seq, payload }))
        }
    }
}
