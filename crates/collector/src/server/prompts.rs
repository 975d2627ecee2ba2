//! `POST /v1/prompt-blocks?pool=NAME&path=PATH`: the blocks of a request, its body as the client sent it.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use warmroute_prompts::PromptError;
use warmroute_routing::prompt_blocks::MEDIA_TYPE;

use super::AppState;
use crate::prompts::PromptsError;

/// The most of a body that is read: Envoy's filter holds a mebibyte unless told otherwise.
pub(super) const MAX_BODY_BYTES: usize = 8 << 20;

/// What is asked of which pool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// The pool.
    pool: String,
    /// The request's path.
    path: String,
    /// Whether the token IDs are wanted, too.
    #[serde(default)]
    tokens: bool,
}

/// Answers in the bytes of `warmroute_routing::prompt_blocks` where they are accepted, else in JSON.
pub(super) async fn prompt_blocks(
    State(state): State<AppState>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, PromptsError> {
    let mut answer = state.prompts.answer(&asked.pool, &asked.path, body).await?;
    if !asked.tokens {
        answer.blocks.tokens = None;
    }
    let accepted = headers.get(header::ACCEPT).is_some_and(|value| value.as_bytes() == MEDIA_TYPE.as_bytes());
    Ok(if accepted {
        ([(header::CONTENT_TYPE, MEDIA_TYPE)], answer.blocks.encode()).into_response()
    } else {
        Json(answer.shown()).into_response()
    })
}

impl IntoResponse for PromptsError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::NoPrompts(_) => StatusCode::NOT_FOUND,
            Self::NotReady | Self::Busy | Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unusable(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Engine(_) => StatusCode::BAD_GATEWAY,
            Self::Prompt(PromptError::Malformed(_)) => StatusCode::BAD_REQUEST,
            Self::Prompt(_) => StatusCode::UNPROCESSABLE_ENTITY,
        };
        (status, format!("{self}\n")).into_response()
    }
}
