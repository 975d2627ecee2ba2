//! An upstream that says what reached it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Json;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A server that answers every request, after as many milliseconds as its header `x-delay-ms` says and where it is not sent
/// elsewhere by `x-redirect-to`, with its own address and with what it was sent, as JSON; `usage` says as many cached
/// tokens as its header `x-usage-cached`: `{"usage","served_by","method","path","headers":{name: value},"body_bytes"}`.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    task: JoinHandle<()>,
}

// === impl Upstream ===

impl Upstream {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port")?;
        let address = listener.local_addr()?;
        let echo = async move |method: Method, uri: Uri, headers: HeaderMap, body: axum::body::Bytes| {
            if let Some(delay) = headers.get("x-delay-ms").and_then(|value| value.to_str().ok()?.parse().ok())
            {
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
            if let Some(target) =
                headers.get("x-redirect-to").filter(|target| target.as_bytes() != uri.path().as_bytes())
            {
                return (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, target.clone())]).into_response();
            }
            let headers: Value = headers
                .iter()
                .map(|(name, value)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                })
                .collect();
            // What an engine would say, where the scenario has it say something.
            let cached = headers.get("x-usage-cached").and_then(Value::as_str).map(str::parse::<u64>);
            let usage = cached
                .and_then(Result::ok)
                .map(|cached| json!({ "prompt_tokens_details": { "cached_tokens": cached } }));
            let echo = Json(json!({
                "usage": usage,
                "served_by": address.to_string(),
                "method": method.as_str(),
                "path": uri.path(),
                "headers": headers,
                "body_bytes": body.len(),
            }));
            echo.into_response()
        };
        let app = axum::Router::new().fallback(echo).layer(axum::extract::DefaultBodyLimit::disable());
        let task = tokio::spawn(async move {
            // Ends when the task is aborted.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}
