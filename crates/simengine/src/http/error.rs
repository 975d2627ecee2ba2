//! Errors as OpenAI clients expect them.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::scheduler::Refusal;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApiError {
    #[error("{0}")]
    BadRequest(String),
    #[error("The model `{0}` does not exist.")]
    UnknownModel(String),
    #[error("{0}")]
    Unavailable(String),
}

#[derive(Serialize)]
struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Serialize)]
struct ErrorDetail {
    message: String,
    r#type: &'static str,
    param: Option<&'static str>,
    code: u16,
}

// === impl ApiError ===

impl ApiError {
    /// The engine stops while the request runs.
    pub(super) fn shutting_down() -> Self {
        Refusal::Closed.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::UnknownModel(_) => StatusCode::NOT_FOUND,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn detail(&self) -> ErrorDetail {
        let (r#type, param) = match self {
            Self::BadRequest(_) => ("BadRequestError", None),
            Self::UnknownModel(_) => ("NotFoundError", Some("model")),
            Self::Unavailable(_) => ("ServiceUnavailableError", None),
        };
        ErrorDetail { message: self.to_string(), r#type, param, code: self.status().as_u16() }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooLong { .. } => Self::BadRequest(refusal.to_string()),
            Refusal::QueueFull | Refusal::Closed => Self::Unavailable(refusal.to_string()),
        }
    }
}

impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        Self::BadRequest(format!("invalid request body: {error}"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status(), Json(ErrorBody { error: self.detail() })).into_response()
    }
}
