//! `GET /v1/pools/{pool}/workers` and `POST /v1/pools/{pool}/explain`: for people.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;

use super::AppState;
use crate::inspect::{Explanation, PoolReport, Question};
use crate::pool::{Pool, PoolEnded};

/// The most of a question that is read: a million tokens take less.
pub(super) const MAX_QUESTION_BYTES: usize = 16 << 20;

/// Why there is no answer, for people too.
type Refused = (StatusCode, String);

/// The workers of a pool.
pub(super) async fn workers(
    State(state): State<AppState>,
    Path(name): Path<String>,
) -> Result<Json<PoolReport>, Refused> {
    let mut report = pool(&state, &name)?.report().await.map_err(ended)?;
    report.prompts = state.prompts.report(&name);
    Ok(Json(report))
}

/// What each worker has of a prompt.
pub(super) async fn explain(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Json(question): Json<Question>,
) -> Result<Json<Explanation>, Refused> {
    pool(&state, &name)?.explain(question).await.map(Json).map_err(ended)
}

fn pool(state: &AppState, name: &str) -> Result<Pool, Refused> {
    state.pools.get(name).ok_or_else(|| (StatusCode::NOT_FOUND, format!("no pool is named `{name}`\n")))
}

fn ended(error: PoolEnded) -> Refused {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
}
