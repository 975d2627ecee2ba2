//! `POST /v1/completions`

mod request;
mod response;
mod stream;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use self::request::CompletionRequest;
use self::response::{Answer, whole_answer};
use super::error::ApiError;
use super::usage::{Usage, collect};
use super::{App, unix_time};
use crate::cache::Namespace;
use crate::engine::{Delivery, Prompt};

pub(super) async fn completions(State(app): State<App>, body: Bytes) -> Result<Response, ApiError> {
    let request: CompletionRequest = serde_json::from_slice(&body)?;
    let max_tokens = request.max_tokens()?;
    let lora = app.models.resolve(request.model.as_deref())?;
    let answer = Answer::new(app.models.name(lora.as_ref()), unix_time() as u64);
    let namespace = Namespace { lora, salt: request.salt() };
    let usage = Usage::of_prompts(request.prompt.0.iter().map(Vec::len).sum());
    let job = |tokens: &Vec<u32>| Prompt { tokens: tokens.clone(), namespace: namespace.clone(), max_tokens };
    let jobs: Vec<Prompt> = request.prompt.0.iter().map(job).collect();
    let choices = jobs.len();
    let with_ids = request.returns_token_ids();
    if request.streams() {
        let ticket = app.engine.submit(jobs, Delivery::Streamed)?;
        let usage = request.streams_usage().then_some(usage);
        return Ok(stream::response(ticket, answer, choices, usage, with_ids));
    }
    let ticket = app.engine.submit(jobs, Delivery::AtEnd)?;
    let (completions, usage) = collect(ticket, choices, usage).await?;
    let prompts = with_ids.then_some(request.prompt.0);
    Ok(Json(whole_answer(&answer, completions, prompts, usage)).into_response())
}
