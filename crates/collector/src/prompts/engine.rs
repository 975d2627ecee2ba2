//! Asking an engine for a prompt's tokens.
//!
//! A chat as the client sent it goes to `/v1/chat/completions/render` (vLLM with `--enable-scale-out`, or a `vllm launch
//! render` server), which knows everything that the engine itself would do. Where there is none, `/tokenize` is asked (vLLM,
//! SGLang): it takes messages and tools, the rest travels as variables of the template.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use serde::Deserialize;
use warmroute_prompts::{ChatRequest, Json, Prompt, Request, Source};

use crate::http::{self, HttpError, Limits};

/// What an answer may cost. A token takes some eight bytes.
const LIMITS: Limits = Limits { time: Duration::from_secs(5), bytes: 64 << 20 };

/// An engine that is asked.
#[derive(Clone, Debug)]
pub struct Engine {
    authority: String,
}

/// Why an engine gave no tokens.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// It did not answer.
    #[error("the engine at {authority} did not answer: {message}")]
    NoAnswer {
        /// Its `host:port`.
        authority: String,
        /// Why.
        message: String,
    },
    /// It refuses the request.
    #[error("the engine refuses the request with status {status}: {message}")]
    Refused {
        /// The status of its answer.
        status: u16,
        /// The beginning of what it says.
        message: String,
    },
    /// Its answer has no tokens.
    #[error("the engine's answer has no tokens: {0}")]
    Answer(String),
    /// It cannot be asked for such a prompt.
    #[error("an engine cannot be asked for {0}")]
    Unsupported(&'static str),
}

#[derive(Deserialize)]
struct Tokenized {
    tokens: Vec<u32>,
}

#[derive(Deserialize)]
struct Rendered {
    token_ids: Vec<u32>,
}

// === impl Engine ===

impl Engine {
    /// The engine at a `host:port`.
    pub fn new(authority: &str) -> Self {
        Self { authority: authority.to_owned() }
    }

    /// The tokens of a request's prompt. `path` and `body` are the request as the client sent it.
    ///
    /// # Errors
    ///
    /// The engine does not answer, refuses, or cannot be asked for such a prompt.
    pub async fn tokens(&self, request: &Request, path: &str, body: &Bytes) -> Result<Prompt, EngineError> {
        let whole = |tokens| Prompt { tokens, is_whole: true };
        let chat = match &request.source {
            Source::Tokens(tokens) => return Ok(whole(tokens.clone())),
            Source::Text { text, special_tokens } => {
                let question = Json::object([
                    ("prompt", Json::Text(text.clone())),
                    ("add_special_tokens", Json::Bool(*special_tokens)),
                ]);
                return self.tokenize(request, question).await.map(whole);
            }
            Source::Chat(chat) => chat,
        };
        if chat.messages.iter().any(has_media) {
            return Err(EngineError::Unsupported("a prompt with images or audio"));
        }
        if path.split('?').next().is_some_and(|path| path.ends_with("/v1/chat/completions")) {
            match self.ask("/v1/chat/completions/render", body.clone()).await {
                Ok(answer) => return read::<Rendered>(&answer).map(|rendered| whole(rendered.token_ids)),
                // There is no such endpoint, or it is switched off.
                Err(EngineError::Refused { status: 403..=405, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.tokenize(request, question(chat)).await.map(whole)
    }

    async fn tokenize(&self, request: &Request, mut question: Json) -> Result<Vec<u32>, EngineError> {
        if let Some(model) = &request.model {
            question.set("model", Json::Text(model.clone()));
        }
        let answer = self.ask("/tokenize", Bytes::from(question.to_string())).await?;
        read::<Tokenized>(&answer).map(|tokenized| tokenized.tokens)
    }

    async fn ask(&self, path: &str, body: Bytes) -> Result<Bytes, EngineError> {
        let answer = http::ask_with(Method::POST, &self.authority, path, body, LIMITS).await;
        let (status, answer) = answer.map_err(|error: HttpError| EngineError::NoAnswer {
            authority: self.authority.clone(),
            message: error.to_string(),
        })?;
        match status {
            StatusCode::OK => Ok(answer),
            status if status.is_server_error() => Err(EngineError::NoAnswer {
                authority: self.authority.clone(),
                message: format!("status {status}"),
            }),
            status => {
                let message = String::from_utf8_lossy(&answer).chars().take(200).collect();
                Err(EngineError::Refused { status: status.as_u16(), message })
            }
        }
    }
}

/// A chat for `/tokenize`.
fn question(chat: &ChatRequest) -> Json {
    let mut variables = Json::Object(chat.variables.clone());
    if let Some(documents) = &chat.documents {
        variables.set("documents", documents.clone());
    }
    let mut question = Json::object([
        ("messages", Json::List(chat.messages.clone())),
        ("add_generation_prompt", Json::Bool(chat.add_generation_prompt)),
        ("continue_final_message", Json::Bool(chat.continue_final_message)),
        ("add_special_tokens", Json::Bool(chat.special_tokens)),
        ("chat_template_kwargs", variables),
    ]);
    if let Some(tools) = &chat.tools {
        question.set("tools", tools.clone());
    }
    if let Some(template) = &chat.template {
        question.set("chat_template", Json::Text(template.clone()));
    }
    question
}

fn has_media(message: &Json) -> bool {
    let is_text = |part: &Json| {
        part.as_str().is_some()
            || matches!(
                part.get_str("type"),
                Some("text" | "input_text" | "output_text" | "refusal" | "thinking")
            )
    };
    message.get("content").and_then(Json::as_list).is_some_and(|parts| !parts.iter().all(is_text))
}

fn read<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, EngineError> {
    serde_json::from_slice(answer).map_err(|error| EngineError::Answer(error.to_string()))
}
