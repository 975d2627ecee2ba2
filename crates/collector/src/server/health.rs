//! `GET /healthz` and `GET /readyz`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use super::AppState;

/// Whether every pool is ready, and which workers are not known yet.
#[derive(Debug, Serialize)]
pub(super) struct Readiness {
    ready: bool,
    pools: BTreeMap<String, PoolReadiness>,
}

/// Whether a pool is ready, and which of its workers, as `address/rank`, are not known yet.
#[derive(Debug, Serialize)]
struct PoolReadiness {
    ready: bool,
    missing: Vec<String>,
    /// The workers of which nothing is indexed, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<String, String>,
}

/// The process serves.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// 200 once every pool is ready, else 503.
pub(super) async fn readyz(State(state): State<AppState>) -> (StatusCode, Json<Readiness>) {
    let pools: BTreeMap<_, _> = state
        .pools
        .all()
        .into_iter()
        .map(|pool| {
            let view = pool.view().borrow().clone();
            let refused =
                view.refused.iter().map(|(worker, why)| (worker.clone(), why.to_string())).collect();
            let readiness = PoolReadiness { ready: view.ready, missing: view.missing.to_vec(), refused };
            (pool.name().to_owned(), readiness)
        })
        .collect();
    let ready = pools.values().all(|pool| pool.ready);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, pools }))
}
