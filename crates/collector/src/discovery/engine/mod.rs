//! What an engine itself says of where it publishes.

mod sglang;
mod vllm;

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use warmroute_wire::Engine;

use crate::config::{Endpoint, EventSource, host};
use crate::http::{self, HttpError, Limits};

/// More than any engine's configuration or metrics take.
const LIMITS: Limits = Limits { time: Duration::from_secs(5), bytes: 8 << 20 };

/// What an engine says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) source: EventSource,
    /// Tokens in a block, if it says so.
    pub(super) block_size: Option<u32>,
}

/// Why an engine's answer does not help.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("{path}: {error}")]
    Http { path: &'static str, error: HttpError },
    #[error("{path} answers {status}: {advice}")]
    Status { path: &'static str, status: StatusCode, advice: &'static str },
    #[error("{path}: {error}")]
    Json { path: &'static str, error: serde_json::Error },
    #[error("it publishes no events: {0}")]
    Off(&'static str),
    #[error("it publishes at `{0}`, which cannot be dialled: write `events`")]
    Endpoint(String),
    #[error("it tells of ranks {0:?}, which are not all from 0 on: write `events`")]
    Ranks(Vec<u32>),
    #[error("`{0}` cannot be asked")]
    Engine(Engine),
}

/// Asks the engine at `address`, as Envoy knows it. `block_size`: the pool's.
pub(super) async fn ask(engine: Engine, block_size: u32, address: SocketAddr) -> Result<Found, AskError> {
    match engine {
        Engine::Vllm => vllm::ask(address, block_size).await,
        Engine::Sglang => sglang::ask(address).await,
        Engine::TrtLlm | Engine::LlmdSim => Err(AskError::Engine(engine)),
    }
}

async fn get(address: SocketAddr, path: &'static str, advice: &'static str) -> Result<Bytes, AskError> {
    let answer = http::ask(Method::GET, &address.to_string(), path, LIMITS).await;
    match answer.map_err(|error| AskError::Http { path, error })? {
        (StatusCode::OK, body) => Ok(body),
        (status, _) => Err(AskError::Status { path, status, advice }),
    }
}

/// An endpoint as the engine binds it, as others dial it: every address of its host is the one that it is known by.
fn dialled(endpoint: &str, address: SocketAddr) -> Result<Endpoint, AskError> {
    let wrong = || AskError::Endpoint(endpoint.to_owned());
    let (bound, port) =
        endpoint.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(wrong)?;
    let host = match bound {
        "*" | "0.0.0.0" | "::" | "[::]" | "" => host(address),
        other => other.to_owned(),
    };
    format!("tcp://{host}:{port}").parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests;
