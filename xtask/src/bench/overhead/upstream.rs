//! The engines' place: 64 endpoints that read a request whole and answer at once.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use warmroute_e2e::ports;

use super::http1::Wire;
use super::prompts::MODEL;

/// Endpoints on ports of their own. They run in this process, whose CPU time is not counted.
#[derive(Debug)]
pub(super) struct Upstreams {
    pub(super) addresses: Vec<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
}

// === impl Upstreams ===

impl Upstreams {
    pub(super) async fn start(count: usize) -> Result<Self> {
        let mut started = Self { addresses: Vec::new(), tasks: Vec::new() };
        for number in 0..count {
            let address = ports::free()?;
            let listener = TcpListener::bind(address).await.context("cannot listen")?;
            let answer = answer(number);
            started.addresses.push(address);
            started.tasks.push(tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let answer = answer.clone();
                    // A connection that breaks is the client's to report.
                    tokio::spawn(async move { Wire::new(stream).map(|wire| serve(wire, answer))?.await });
                }
            }));
        }
        Ok(started)
    }
}

impl Drop for Upstreams {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn serve(mut wire: Wire, answer: Vec<u8>) -> Result<()> {
    while let Some(head) = wire.head().await? {
        wire.body(&head, |_| ()).await?;
        wire.write(&answer).await?;
    }
    Ok(())
}

/// One answer to everything: to a completion, and to what the peers' routers ask an engine about itself.
fn answer(number: usize) -> Vec<u8> {
    let body = json!({
        "served_by": number,
        "id": "cmpl-1",
        "object": "text_completion",
        "model": MODEL,
        "choices": [{ "index": 0, "text": " a", "finish_reason": "length" }],
        "data": [{ "id": MODEL, "object": "model" }],
        "model_path": MODEL,
    })
    .to_string();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}
