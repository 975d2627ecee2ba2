//! Token ids in, token ids out: vLLM's `/inference/v1/generate` and SGLang's `/generate`. Neither streams here.

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::App;
use super::error::ApiError;
use super::prompt::Prompts;
use super::usage::{Completion, Usage, collect};
use crate::cache::Namespace;
use crate::engine::{Delivery, Prompt};
use crate::output::text_of;

/// Output tokens when the request does not say.
const DEFAULT_MAX_TOKENS: usize = 16;

#[derive(Debug, Deserialize)]
struct VllmRequest {
    model: Option<String>,
    token_ids: Prompts,
    sampling_params: Option<SamplingParams>,
    cache_salt: Option<String>,
    stream: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct SglangRequest {
    input_ids: Prompts,
    sampling_params: Option<SamplingParams>,
    /// SGLang's salt.
    extra_key: Option<String>,
    /// The adapter's name.
    lora_path: Option<String>,
    stream: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct SamplingParams {
    #[serde(alias = "max_new_tokens")]
    max_tokens: Option<usize>,
}

/// What both kinds ask for.
struct Generate {
    model: Option<String>,
    prompts: Prompts,
    salt: Option<String>,
    max_tokens: usize,
}

#[derive(Serialize)]
pub(super) struct VllmResponse {
    usage: Usage,
    output_mode: &'static str,
    choices: Vec<VllmChoice>,
}

#[derive(Serialize)]
struct VllmChoice {
    index: usize,
    finish_reason: &'static str,
    token_ids: Vec<u32>,
}

/// `POST /inference/v1/generate`
pub(super) async fn vllm_generate(
    State(app): State<App>,
    body: Bytes,
) -> Result<Json<VllmResponse>, ApiError> {
    let request: VllmRequest = serde_json::from_slice(&body)?;
    let max_tokens = max_tokens(request.sampling_params.as_ref(), request.stream)?;
    let generate =
        Generate { model: request.model, prompts: request.token_ids, salt: request.cache_salt, max_tokens };
    let (completions, usage) = generate.run(&app).await?;
    let choice = |(index, completion): (usize, Completion)| VllmChoice {
        index,
        finish_reason: "length",
        token_ids: completion.tokens,
    };
    let choices = completions.into_iter().enumerate().map(choice).collect();
    Ok(Json(VllmResponse { usage, output_mode: "tokens", choices }))
}

/// `POST /generate`
pub(super) async fn sglang_generate(State(app): State<App>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let request: SglangRequest = serde_json::from_slice(&body)?;
    let max_tokens = max_tokens(request.sampling_params.as_ref(), request.stream)?;
    let prompt_lens: Vec<usize> = request.input_ids.0.iter().map(Vec::len).collect();
    let generate = Generate {
        model: request.lora_path,
        prompts: request.input_ids,
        salt: request.extra_key,
        max_tokens,
    };
    let (completions, _) = generate.run(&app).await?;
    let answers = completions.iter().zip(prompt_lens).map(|(completion, len)| sglang_answer(completion, len));
    let mut answers: Vec<Value> = answers.collect();
    // A single prompt gets an object, several get a list.
    Ok(Json(if answers.len() == 1 { answers.remove(0) } else { Value::Array(answers) }))
}

fn sglang_answer(completion: &Completion, prompt_tokens: usize) -> Value {
    json!({
        "text": text_of(&completion.tokens),
        "output_ids": completion.tokens,
        "meta_info": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion.tokens.len(),
            "cached_tokens": completion.cached_tokens,
            "finish_reason": { "type": "length", "length": completion.tokens.len() },
        },
    })
}

fn max_tokens(params: Option<&SamplingParams>, stream: Option<bool>) -> Result<usize, ApiError> {
    if stream == Some(true) {
        return Err(ApiError::BadRequest("this endpoint does not stream; use /v1/completions".to_owned()));
    }
    match params.and_then(|params| params.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS) {
        0 => Err(ApiError::BadRequest("max_tokens must be at least 1".to_owned())),
        max_tokens => Ok(max_tokens),
    }
}

// === impl Generate ===

impl Generate {
    async fn run(self, app: &App) -> Result<(Vec<Completion>, Usage), ApiError> {
        let lora = app.models.resolve(self.model.as_deref())?;
        let salt = self.salt.filter(|salt| !salt.is_empty()).map(Into::into);
        let namespace = Namespace { lora, salt };
        let Prompts(prompts) = self.prompts;
        let usage = Usage::of_prompts(prompts.iter().map(Vec::len).sum());
        let choices = prompts.len();
        let job = |tokens| Prompt { tokens, namespace: namespace.clone(), max_tokens: self.max_tokens };
        let ticket = app.engine.submit(prompts.into_iter().map(job).collect(), Delivery::AtEnd)?;
        collect(ticket, choices, usage).await
    }
}
