//! One request to an engine's HTTP server, bounded in time and in what is read of the answer.

use std::io;
use std::time::Duration;

use axum::http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use axum::http::{Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What a request may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From connecting to the answer's last byte.
    pub(crate) time: Duration,
    /// Bytes of the answer's body.
    pub(crate) bytes: usize,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The server has not been asked.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// It may have been asked.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// It may have been asked.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The answer is cut off.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
    /// Host or path are none.
    #[error(transparent)]
    Request(#[from] axum::http::Error),
}

/// Asks `http://{authority}{path}` without a body; status and body of the answer, whatever the status is.
pub(crate) async fn ask(
    method: Method,
    authority: &str,
    path: &str,
    limits: Limits,
) -> Result<(StatusCode, Bytes), HttpError> {
    ask_with(method, authority, path, Bytes::new(), limits).await
}

/// Asks `http://{authority}{path}` with a body, JSON unless it is empty.
pub(crate) async fn ask_with(
    method: Method,
    authority: &str,
    path: &str,
    body: Bytes,
    limits: Limits,
) -> Result<(StatusCode, Bytes), HttpError> {
    let answer = exchange(method, authority, path, body, limits.bytes);
    timeout(limits.time, answer).await.map_err(|_| HttpError::Timeout(limits.time))?
}

async fn exchange(
    method: Method,
    authority: &str,
    path: &str,
    body: Bytes,
    bytes: usize,
) -> Result<(StatusCode, Bytes), HttpError> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, authority)
        .header(USER_AGENT, "warmroute-collector")
        .header(ACCEPT, "*/*")
        .header(CONNECTION, "close");
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::new(body))?;
    let stream = TcpStream::connect(authority).await.map_err(HttpError::Connect)?;
    stream.set_nodelay(true).map_err(HttpError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, bytes).collect().await.map_err(|error| {
            match error.downcast::<hyper::Error>() {
                Ok(error) => HttpError::Http(*error),
                // The only other one is the limit's.
                Err(_) => HttpError::TooLong(bytes),
            }
        })?;
        Ok((head.status, body.to_bytes()))
    };
    tokio::pin!(connection, answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // It ends where the server closes it: what came before is still read.
        _ = &mut connection => answer.await,
    }
}

#[cfg(test)]
mod tests;
