//! `GET /v1/pools/{pool}/feed`.

use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use warmroute_routing::feed::{Request, RequestError};

use super::AppState;
use crate::pool::{Pool, PoolEnded, View};

/// The longest that an answer is held open.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Why there is no answer.
pub(super) enum FeedError {
    /// No pool of that name.
    UnknownPool(String),
    /// The query is none.
    Query(RequestError),
    /// The pool has not heard all of its engines yet, or the collector stops.
    NotReady,
}

/// Answers a publisher, at once where there is news, else when there is or the wait is over.
pub(super) async fn feed(
    State(state): State<AppState>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, FeedError> {
    let Some(pool) = state.pools.get(&name) else { return Err(FeedError::UnknownPool(name)) };
    let result = answer(&pool, query.as_deref(), state.stopping).await;
    if let Err(error) = &result {
        pool.metrics().feed_answer(error.as_str(), 0, 0);
    }
    result
}

async fn answer(
    pool: &Pool,
    query: Option<&str>,
    stopping: watch::Receiver<bool>,
) -> Result<Response, FeedError> {
    let missing = || RequestError { field: "generation".to_owned() };
    let query = query.filter(|query| !query.is_empty()).ok_or_else(missing).map_err(FeedError::Query)?;
    let request = Request::parse_query(query).map_err(FeedError::Query)?;
    let mut view = pool.view();
    if !view.borrow().ready {
        return Err(FeedError::NotReady);
    }
    wait_for_news(&mut view, &request, stopping).await;
    let answer = pool.answer(request).await?;
    pool.metrics().feed_answer(answer.kind.as_str(), answer.pages, answer.bytes.len());
    let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, answer.bytes).into_response())
}

/// Waits until the publisher lacks something, or its time is over, or the collector stops.
async fn wait_for_news(
    view: &mut watch::Receiver<View>,
    request: &Request,
    mut stopping: watch::Receiver<bool>,
) {
    let cursor = request.cursor;
    let deadline = Instant::now() + MAX_WAIT.min(Duration::from_millis(u64::from(request.wait_ms)));
    let is_news = |view: &View| {
        cursor.generation != view.generation
            || cursor.next_page < view.pages
            || cursor.position != view.version
    };
    // Each of these ends the wait, whatever it brings.
    tokio::select! {
        _ = timeout_at(deadline, view.wait_for(is_news)) => {}
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
}

// === impl FeedError ===

impl FeedError {
    /// The error's name in metrics.
    fn as_str(&self) -> &'static str {
        match self {
            Self::UnknownPool(_) => "unknown_pool",
            Self::Query(_) => "bad_request",
            Self::NotReady => "not_ready",
        }
    }
}

impl From<PoolEnded> for FeedError {
    fn from(PoolEnded: PoolEnded) -> Self {
        Self::NotReady
    }
}

impl IntoResponse for FeedError {
    fn into_response(self) -> Response {
        match self {
            Self::UnknownPool(name) => {
                (StatusCode::NOT_FOUND, format!("no pool is named `{name}`\n")).into_response()
            }
            Self::Query(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
            Self::NotReady => {
                let retry = [(header::RETRY_AFTER, "1")];
                let message = "the pool has not heard all of its engines yet\n";
                (StatusCode::SERVICE_UNAVAILABLE, retry, message).into_response()
            }
        }
    }
}
