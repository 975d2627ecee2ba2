//! HTTP/1.1 by hand, for what no well-behaved client sends.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Nothing here takes this long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(20);

/// A connection.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
}

/// An answer, as far as a scenario looks at it.
#[derive(Debug, Clone)]
pub struct RawAnswer {
    /// The status.
    pub status: u16,
    /// The header lines and the body as they came.
    pub text: String,
}

// === impl RawClient ===

impl RawClient {
    /// Connects to the address of an `http://` URL.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn connect(url: &str) -> Result<Self> {
        let address: SocketAddr = url.trim_start_matches("http://").parse().context("no address")?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the connection is closed.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// Whether anything comes within this time.
    ///
    /// # Errors
    /// When the connection is closed.
    pub async fn hears_within(&mut self, time: Duration) -> Result<bool> {
        let mut byte = [0];
        match timeout(time, self.stream.peek(&mut byte)).await {
            Err(_) => Ok(false),
            Ok(Ok(1..)) => Ok(true),
            Ok(Ok(_)) => bail!("the connection was closed"),
            Ok(Err(error)) => Err(error.into()),
        }
    }

    /// Reads one whole answer, by its content length.
    ///
    /// # Errors
    /// When none comes.
    pub async fn answer(&mut self) -> Result<RawAnswer> {
        timeout(DEADLINE, self.read_answer()).await.context("no answer in time")?
    }

    async fn read_answer(&mut self) -> Result<RawAnswer> {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&bytes);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(Ok(0), str::parse)?;
                if body.len() >= length {
                    let status = head.split(' ').nth(1).context("no status")?.parse()?;
                    return Ok(RawAnswer { status, text: text.into_owned() });
                }
            }
            let count = self.stream.read(&mut piece).await?;
            if count == 0 {
                bail!("the connection was closed after {:?}", String::from_utf8_lossy(&bytes));
            }
            bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        }
    }
}
