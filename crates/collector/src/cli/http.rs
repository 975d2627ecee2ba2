//! One request to a running collector, whose answers tell their length.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

const LIMIT: Duration = Duration::from_secs(30);
/// More than any report takes: a worker's is some 500 bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// A running collector.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Collector {
    /// The collector's `host:port`.
    #[arg(long, default_value = "127.0.0.1:9400")]
    collector: String,
}

// === impl Collector ===

impl Collector {
    /// Asks for what is at a path.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(&format!("GET {path} HTTP/1.1\r\n"), "")
    }

    /// Sends JSON to a path.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        let body = serde_json::to_string(body)?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.ask(&head, &body)
    }

    fn ask<T: DeserializeOwned>(&self, head: &str, body: &str) -> anyhow::Result<T> {
        let answer = self.exchange(head, body).with_context(|| format!("collector {}", self.collector))?;
        let (head, body) = answer.split_once("\r\n\r\n").context("the answer is no HTTP")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        match (status, serde_json::from_str(body)) {
            // `/readyz` answers in full while it is not ready.
            (Some(200 | 503), Ok(answer)) => Ok(answer),
            (Some(200), Err(error)) => Err(error).context("the answer is not understood"),
            _ => bail!("{}", body.trim_end()),
        }
    }

    fn exchange(&self, head: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.collector)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        write!(stream, "{head}Host: {}\r\nConnection: close\r\n\r\n{body}", self.collector)?;
        let mut answer = String::new();
        stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer)?;
        Ok(answer)
    }
}
