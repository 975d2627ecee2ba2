//! The HTTP surface: OpenAI completions and chats, token-in endpoints, and what operators ask.

mod admin;
mod chat;
mod completions;
mod error;
mod generate;
mod metrics;
mod models;
mod prompt;
mod usage;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::HeaderValue;
use axum::middleware::map_response_with_state;
use axum::response::Response;
use axum::routing::{get, post};

use self::models::Models;
use crate::config::Config;
use crate::engine::Engine;

/// Names the engine that served, by its listen address, so that a load test can tell.
const SERVED_BY: &str = "x-simengine";

/// The largest body, in bytes: a million token ids in decimal.
const MAX_BODY_BYTES: usize = 8 << 20;

/// What handlers share.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) config: Arc<Config>,
    models: Arc<Models>,
    /// The event endpoints that were bound.
    pub(crate) events: Option<String>,
    pub(crate) replay: Option<String>,
    /// Seconds since 1970.
    started: f64,
}

/// The routes. `listen` is the address that was bound.
pub(crate) fn router(app: App, listen: &str) -> Router {
    let served_by = HeaderValue::from_str(listen).unwrap_or(HeaderValue::from_static("unknown"));
    Router::new()
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(chat::chat_completions))
        .route("/inference/v1/generate", post(generate::vllm_generate))
        .route("/generate", post(generate::sglang_generate))
        .route("/v1/models", get(models::list))
        .route("/health", get(admin::health))
        .route("/kv_event_sources", get(admin::kv_event_sources))
        .route("/reset_prefix_cache", post(admin::reset_prefix_cache))
        .route("/metrics", get(metrics::metrics))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(map_response_with_state(served_by, name_server))
        .with_state(app)
}

async fn name_server(State(served_by): State<HeaderValue>, mut response: Response) -> Response {
    response.headers_mut().insert(SERVED_BY, served_by);
    response
}

/// Seconds since 1970.
fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

// === impl App ===

impl App {
    pub(crate) fn new(
        engine: Arc<Engine>,
        config: Arc<Config>,
        events: Option<String>,
        replay: Option<String>,
    ) -> Self {
        let models = Arc::new(Models::new(&config.model, &config.loras));
        Self { engine, config, models, events, replay, started: unix_time() }
    }
}
