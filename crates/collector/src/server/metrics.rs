//! `GET /metrics`.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::AppState;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics, their gauges as they are now.
pub(super) async fn metrics(State(state): State<AppState>) -> Response {
    for pool in state.pools.all() {
        // A pool that has ended keeps its last numbers: the collector stops.
        let _ = pool.refresh_metrics().await;
    }
    match state.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
