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
    let prompts = request.prompt.0;
    let usage = Usage::of_prompts(prompts.iter().map(Vec::len).sum());
    let jobs = prompts.iter().map(|tokens| Prompt {
        tokens: tokens.clone(),
        namespace: namespace.clone(),
        max_tokens,
    });
    let delivery = if request.stream { Delivery::Streamed } else { Delivery::AtEnd };
    let ticket = app.engine.submit(jobs.collect(), delivery)?;
    if request.stream {
        let include_usage = request.stream_options.include_usage;
        return Ok(stream::response(
            ticket,
            answer,
            prompts.len(),
            include_usage.then_some(usage),
            request.return_token_ids,
        ));
    }
    let (completions, usage) = collect(ticket, prompts.len(), usage).await?;
    let prompts = request.return_token_ids.then_some(prompts);
    Ok(Json(whole_answer(&answer, completions, prompts, usage)).into_response())
}
