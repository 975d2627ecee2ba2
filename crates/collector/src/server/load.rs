//! `POST /v1/pools/{pool}/load`.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use warmroute_routing::loads::{LoadReport, LoadsError, MAX_REPORT_BYTES};

use super::AppState;
use crate::fleet::{Outcome, TooMany};

/// The most of a report that is read.
pub(super) const MAX_BYTES: usize = MAX_REPORT_BYTES;

/// Why a report is refused.
pub(super) enum Refused {
    /// No pool of that name.
    UnknownPool(String),
    /// The body is none.
    Report(LoadsError),
    /// There are more than can be kept.
    TooMany(TooMany),
}

/// Takes in what a proxy has in flight, and says what the others have once that has changed.
pub(super) async fn load(
    State(state): State<AppState>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let Some(pool) = state.pools.get(&name) else { return Err(Refused::UnknownPool(name)) };
    let metrics = pool.metrics();
    let report = LoadReport::decode(&body).map_err(|error| {
        metrics.load_report("bad_report");
        Refused::Report(error)
    })?;
    let outcome = pool.fleet().exchange(report, state.stopping).await.map_err(|error| {
        metrics.load_report("too_many");
        Refused::TooMany(error)
    })?;
    let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok(match outcome {
        Outcome::Answer(load) => {
            metrics.load_report("answered");
            (headers, load.encode()).into_response()
        }
        Outcome::Superseded => {
            metrics.load_report("superseded");
            StatusCode::NO_CONTENT.into_response()
        }
    })
}

// === impl Refused ===

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, message) = match self {
            Self::UnknownPool(name) => (StatusCode::NOT_FOUND, format!("no pool is named `{name}`\n")),
            Self::Report(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
            Self::TooMany(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        };
        (status, message).into_response()
    }
}
