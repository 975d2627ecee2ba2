//! What operators and collectors ask.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use super::App;

/// vLLM's default; nothing here depends on it.
const HIGH_WATER_MARK: usize = 100_000;

/// The event configuration of one rank, in vLLM's shape.
#[derive(Serialize)]
pub(super) struct EventSource {
    enable_kv_cache_events: bool,
    publisher: &'static str,
    endpoint: String,
    replay_endpoint: Option<String>,
    buffer_steps: usize,
    hwm: usize,
    max_queue_size: usize,
    topic: String,
}

#[derive(Serialize)]
pub(super) struct ResetAnswer {
    success: bool,
}

/// `GET /health`
pub(super) async fn health() -> StatusCode {
    StatusCode::OK
}

/// `GET /kv_event_sources`: by rank, of which there is one; none if the engine publishes no events.
pub(super) async fn kv_event_sources(State(app): State<App>) -> Json<BTreeMap<&'static str, EventSource>> {
    let source = app.events.map(|endpoint| EventSource {
        enable_kv_cache_events: true,
        publisher: "zmq",
        endpoint,
        replay_endpoint: app.replay,
        buffer_steps: app.config.replay_buffer,
        hwm: HIGH_WATER_MARK,
        max_queue_size: HIGH_WATER_MARK,
        topic: app.config.topic.clone(),
    });
    Json(source.into_iter().map(|source| ("0", source)).collect())
}

/// `POST /reset_prefix_cache`: fails while requests run. The event goes out with the next batch.
pub(super) async fn reset_prefix_cache(State(app): State<App>) -> (StatusCode, Json<ResetAnswer>) {
    match app.engine.reset_cache() {
        Ok(()) => (StatusCode::OK, Json(ResetAnswer { success: true })),
        Err(error) => {
            tracing::warn!(%error, "cannot reset the prefix cache");
            (StatusCode::INTERNAL_SERVER_ERROR, Json(ResetAnswer { success: false }))
        }
    }
}
