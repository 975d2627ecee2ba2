//! Requests: what each API's body says about the prompt.

mod chat;
mod messages;
mod responses;
mod text;

use std::sync::Arc;

use crate::error::PromptError;
use crate::json::Json;

/// A request, as far as its prompt goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The model that it names: the base model or an adapter.
    pub model: Option<Arc<str>>,
    /// What keeps its blocks apart from other tenants'.
    pub cache_salt: Option<Arc<str>>,
    /// The prompt.
    pub source: Source,
}

/// What a prompt is made from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Token IDs, as the client sent them.
    Tokens(Vec<u32>),
    /// A text.
    Text {
        /// The text.
        text: Arc<str>,
        /// Whether the tokenizer puts its special tokens around it.
        special_tokens: bool,
    },
    /// A conversation.
    Chat(ChatRequest),
}

/// A conversation, as vLLM's chat API takes it; the other APIs are translated to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// The messages.
    pub messages: Vec<Json>,
    /// The tools, as they are handed to the template.
    pub tools: Option<Json>,
    /// The documents.
    pub documents: Option<Json>,
    /// A template in place of the model's.
    pub template: Option<Arc<str>>,
    /// Further variables of the template.
    pub variables: Vec<(Arc<str>, Json)>,
    /// Whether the prompt ends with the head of an answer.
    pub add_generation_prompt: bool,
    /// Whether the last message is to be gone on with.
    pub continue_final_message: bool,
    /// Whether the tokenizer puts its special tokens around the text, too.
    pub special_tokens: bool,
    /// Whether system messages among the others belong to the first one, if the template wants it first.
    pub may_merge_system: bool,
}

// === impl Request ===

impl Request {
    /// Reads a request. The path may have something before what is known, and a query.
    ///
    /// # Errors
    ///
    /// The path is of no API that is known, the body is not what it takes, or the prompt depends on more than the body.
    pub fn parse(path: &str, body: &[u8]) -> Result<Self, PromptError> {
        let path = path.split(['?', '#']).next().unwrap_or("");
        let read: fn(&Json) -> Result<Source, PromptError> = match path {
            path if path.ends_with("/v1/completions") => text::completions,
            path if path.ends_with("/v1/chat/completions") => chat::chat,
            path if path.ends_with("/v1/responses") => responses::responses,
            path if path.ends_with("/v1/messages") => messages::messages,
            path if path.ends_with("/generate") => text::generate,
            path => return Err(PromptError::Path(path.chars().take(100).collect())),
        };
        let body = Json::parse(body).map_err(|error| PromptError::malformed(error.to_string()))?;
        if body.as_object().is_none() {
            return Err(PromptError::malformed("the body is no JSON object"));
        }
        // What is cut off depends on the engine's limits.
        if body.get("truncate_prompt_tokens").is_some() {
            return Err(PromptError::unsupported("`truncate_prompt_tokens` is not supported"));
        }
        let name = |field: &str| match body.get(field) {
            Some(Json::Text(name)) => Some(Arc::clone(name)),
            _ => None,
        };
        let model = name("lora_path").or_else(|| name("model"));
        Ok(Self { model, cache_salt: name("cache_salt"), source: read(&body)? })
    }
}

/// A list of token IDs, or the first of several lists.
fn token_ids(value: &Json) -> Option<Vec<u32>> {
    let items = value.as_list()?;
    if let Some(first @ Json::List(_)) = items.first() {
        return token_ids(first);
    }
    items
        .iter()
        .map(|item| match item {
            Json::Int(id) => u32::try_from(*id).ok(),
            _ => None,
        })
        .collect()
}

/// A flag: absent and null mean the default.
fn flag(body: &Json, name: &str, default: bool) -> Result<bool, PromptError> {
    match body.get(name) {
        None => Ok(default),
        Some(Json::Bool(value)) => Ok(*value),
        Some(_) => Err(PromptError::malformed(format!("`{name}` is neither true nor false"))),
    }
}

#[cfg(test)]
mod tests;
