//! One `GET /health`, of which only the answer's first line is read.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the answer is no HTTP/1")]
    NoHttp,
}

/// As much of an answer as its version and status take: `HTTP/1.1 200`.
const HEAD_BYTES: usize = 12;

/// The status of `http://{address}/health`.
pub(super) async fn status(address: SocketAddr, limit: Duration) -> Result<u16, RequestError> {
    timeout(limit, ask(address)).await.map_err(|_| RequestError::Timeout(limit))?
}

async fn ask(address: SocketAddr) -> Result<u16, RequestError> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET /health HTTP/1.1\r\nHost: {address}\r\nUser-Agent: warmroute-collector\r\nAccept: */*\r\nConnection: \
         close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    parse(head).ok_or(RequestError::NoHttp)
}

fn parse(head: [u8; HEAD_BYTES]) -> Option<u16> {
    let status = std::str::from_utf8(&head).ok()?.strip_prefix("HTTP/1.")?;
    let (minor, status) = status.split_at_checked(2)?;
    if !matches!(minor, "0 " | "1 ") || !status.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    status.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_a_status_line_has_a_status() {
        assert_eq!(parse(*b"HTTP/1.1 200"), Some(200));
        assert_eq!(parse(*b"HTTP/1.0 503"), Some(503));
        for bad in
            [b"HTTP/1.1 2x0", b"HTTP/1.1200 ", b"HTTP/2.0 200", b"http/1.1 200", b"HTTP/1.1 +20", &[0xFF; 12]]
        {
            assert_eq!(parse(*bad), None, "{bad:?}");
        }
    }

    /// The status that a server is taken to answer, which sends `answer` and then nothing.
    async fn answered(answer: &'static [u8]) -> Result<u16, RequestError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![];
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut request).await.unwrap();
            }
            stream.write_all(answer).await.unwrap();
            // Held open until the client has heard enough.
            let _ = stream.read_u8().await;
            String::from_utf8(request).unwrap()
        });
        let status = status(address, Duration::from_millis(200)).await;
        let request = server.await.unwrap();
        assert!(
            request.starts_with("GET /health HTTP/1.1\r\n") && request.ends_with("\r\n\r\n"),
            "{request}"
        );
        status
    }

    #[tokio::test]
    async fn an_answer_is_read_no_further_than_its_status() {
        assert_eq!(answered(b"HTTP/1.1 503 Service Unavailable\r\nmore").await.unwrap(), 503);
        assert!(matches!(answered(b"SSH-2.0-OpenSSH").await, Err(RequestError::NoHttp)));
        assert!(matches!(answered(b"HTTP/1.1 2").await, Err(RequestError::Timeout(_))));
    }
}
