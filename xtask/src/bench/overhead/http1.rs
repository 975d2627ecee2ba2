//! Just enough of HTTP/1.1 for a client and an upstream that cost next to nothing beside what is measured.

use std::io;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes that are read at once.
const READ: usize = 64 * 1024;

/// A longer head is none.
const LONGEST_HEAD: usize = 8 * 1024 * 1024;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    /// What was read; `start..` is still to be looked at.
    buffer: Vec<u8>,
    start: usize,
}

/// What the head of a message says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The second word of the first line: a request's path, a response's status.
    pub(super) second: String,
    body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Length(usize),
    Chunked,
}

// === impl Wire ===

impl Wire {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(READ), start: 0 })
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// The head of the next message; none where the other end has closed.
    pub(super) async fn head(&mut self) -> Result<Option<Head>> {
        let mut searched = 0_usize;
        loop {
            let unread = self.unread();
            let from = searched.saturating_sub(3);
            let end =
                unread.get(from..).and_then(|bytes| bytes.windows(4).position(|four| four == b"\r\n\r\n"));
            if let Some(end) = end {
                let end = from + end + 4;
                let head = Head::parse(unread.get(..end).unwrap_or_default())?;
                self.start += end;
                return Ok(Some(head));
            }
            searched = unread.len();
            ensure!(searched < LONGEST_HEAD, "an endless head");
            if self.more().await? == 0 {
                ensure!(searched == 0, "closed within a head");
                return Ok(None);
            }
        }
    }

    /// Reads a message's body and passes its parts on.
    pub(super) async fn body(&mut self, head: &Head, mut part: impl FnMut(&[u8])) -> Result<()> {
        match head.body {
            Body::Length(length) => self.exactly(length, &mut part).await,
            Body::Chunked => loop {
                let line = self.line().await?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(size, 16).context("no chunk's size")?;
                self.exactly(size, &mut part).await?;
                self.line().await?;
                if size == 0 {
                    return Ok(());
                }
            },
        }
    }

    async fn exactly(&mut self, mut left: usize, part: &mut impl FnMut(&[u8])) -> Result<()> {
        while left > 0 {
            let unread = self.unread();
            if unread.is_empty() {
                ensure!(self.more().await? > 0, "closed within a body");
                continue;
            }
            let taken = unread.len().min(left);
            part(unread.get(..taken).unwrap_or_default());
            self.start += taken;
            left -= taken;
        }
        Ok(())
    }

    async fn line(&mut self) -> Result<String> {
        loop {
            let unread = self.unread();
            if let Some(end) = unread.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(unread.get(..end).unwrap_or_default()).into_owned();
                self.start += end + 2;
                return Ok(line);
            }
            ensure!(self.more().await? > 0, "closed within a chunk");
        }
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    async fn more(&mut self) -> io::Result<usize> {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        self.buffer.reserve(READ);
        self.stream.read_buf(&mut self.buffer).await
    }
}

// === impl Head ===

impl Head {
    fn parse(head: &[u8]) -> Result<Self> {
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.next().unwrap_or_default();
        let second = first.split(|byte| *byte == b' ').nth(1).context("a first line of one word")?;
        let mut body = Body::Length(0);
        for line in lines {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            if name.eq_ignore_ascii_case(b"content-length") {
                body = Body::Length(std::str::from_utf8(value)?.parse().context("no content-length")?);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    bail!("a transfer encoding that is not chunked");
                }
                body = Body::Chunked;
            }
        }
        Ok(Self { second: String::from_utf8_lossy(second).into_owned(), body })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn reads_messages_one_after_the_other_however_their_bodies_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client =
            Wire::new(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()).unwrap();
        let mut server = Wire::new(listener.accept().await.unwrap().0).unwrap();
        client
            .write(
                b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\
                POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nde\r\n1;x=y\r\nf\r\n0\r\n\r\n\
                GET /c HTTP/1.1\r\nhost: x\r\n\r\n",
            )
            .await
            .unwrap();
        drop(client);
        let mut seen = vec![];
        while let Some(head) = server.head().await.unwrap() {
            let mut body = vec![];
            server.body(&head, |part| body.extend_from_slice(part)).await.unwrap();
            seen.push((head.second, String::from_utf8(body).unwrap()));
        }
        let seen: Vec<_> = seen.iter().map(|(path, body)| (path.as_str(), body.as_str())).collect();
        assert_eq!(seen, [("/a", "abc"), ("/b", "def"), ("/c", "")]);
    }
}
