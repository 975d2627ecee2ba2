//! The request's body, as far as the engine heeds it. Other fields are ignored, as OpenAI servers do.

use std::sync::Arc;

use serde::Deserialize;

use super::super::error::ApiError;
use super::super::prompt::Prompts;

/// OpenAI's default.
const DEFAULT_MAX_TOKENS: usize = 16;

#[derive(Debug, Deserialize)]
pub(super) struct CompletionRequest {
    /// The base model or an adapter; absent: the base model.
    pub(super) model: Option<String>,
    pub(super) prompt: Prompts,
    max_tokens: Option<usize>,
    /// How many answers to each prompt: only one can be had.
    n: Option<usize>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    cache_salt: Option<String>,
    /// Whether the answer repeats the prompt's token ids and names the output's.
    return_token_ids: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

// === impl CompletionRequest ===

impl CompletionRequest {
    pub(super) fn max_tokens(&self) -> Result<usize, ApiError> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::BadRequest("n must be 1".to_owned()));
        }
        match self.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS) {
            0 => Err(ApiError::BadRequest("max_tokens must be at least 1".to_owned())),
            max_tokens => Ok(max_tokens),
        }
    }

    pub(super) fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream ends with the usage.
    pub(super) fn streams_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or(false)
    }

    pub(super) fn returns_token_ids(&self) -> bool {
        self.return_token_ids.unwrap_or(false)
    }

    pub(super) fn salt(&self) -> Option<Arc<str>> {
        self.cache_salt.as_deref().filter(|salt| !salt.is_empty()).map(Arc::from)
    }
}
