//! `POST /v1/chat/completions`: messages in, a message out. It does not stream.
//!
//! `crates/simengine/model` holds a tokenizer and a chat template that make the same tokens of a conversation, for a
//! collector that is to tokenize for this engine.

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::ApiError;
use super::usage::{Usage, collect};
use super::{App, unix_time};
use crate::cache::Namespace;
use crate::engine::{Delivery, Prompt};
use crate::output::{text_of, tokenise};

/// Output tokens when the request does not say.
const DEFAULT_MAX_TOKENS: usize = 16;

#[derive(Debug, Deserialize)]
struct ChatRequest {
    model: Option<String>,
    messages: Vec<Message>,
    #[serde(alias = "max_completion_tokens")]
    max_tokens: Option<usize>,
    cache_salt: Option<String>,
    stream: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    text: String,
}

/// `POST /v1/chat/completions`
pub(super) async fn chat_completions(State(app): State<App>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let request: ChatRequest = serde_json::from_slice(&body)?;
    if request.stream == Some(true) {
        return Err(ApiError::BadRequest("chats do not stream; use /v1/completions".to_owned()));
    }
    let max_tokens = match request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS) {
        0 => return Err(ApiError::BadRequest("max_tokens must be at least 1".to_owned())),
        max_tokens => max_tokens,
    };
    let lora = app.models.resolve(request.model.as_deref())?;
    let model = app.models.name(lora.as_ref()).to_owned();
    let salt = request.cache_salt.filter(|salt| !salt.is_empty()).map(Into::into);
    let tokens = tokenise(&rendered(&request.messages));
    let usage = Usage::of_prompts(tokens.len());
    let prompt = Prompt { tokens, namespace: Namespace { lora, salt }, max_tokens };
    let ticket = app.engine.submit(vec![prompt], Delivery::AtEnd)?;
    let (completions, usage) = collect(ticket, 1, usage).await?;
    let content: String = completions.iter().map(|completion| text_of(&completion.tokens)).collect();
    Ok(Json(json!({
        "object": "chat.completion",
        "created": unix_time() as u64,
        "model": model,
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": content },
            "finish_reason": "length",
        }],
        "usage": usage,
    })))
}

/// The prompt: each message on a line of its own, then the head of the answer.
fn rendered(messages: &[Message]) -> String {
    let message = |message: &Message| format!("<{}>{}\n", message.role, message.content.text());
    messages.iter().map(message).chain(["<assistant>".to_owned()]).collect()
}

// === impl Content ===

impl Content {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use warmroute_prompts::{Model, Options, Request};

    use super::*;

    #[test]
    fn the_model_files_give_the_same_tokens() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("model");
        let model = Model::load(&folder, Options::default()).unwrap();
        let every_byte: String = (0..=255).map(char::from).collect();
        let messages = json!([
            { "role": "system", "content": "Be brief. " },
            { "role": "user", "content": [{ "type": "text", "text": "a <user>" }, { "type": "text", "text": "\n\nb" }] },
            { "role": "assistant", "content": " yes\t" },
            { "role": "user", "content": format!("Größe 你好 👋🏽 {every_byte}") },
        ]);
        let body = json!({ "messages": messages }).to_string();
        let request = Request::parse("/v1/chat/completions", body.as_bytes()).unwrap();
        let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
        assert_eq!(model.prompt(&request, 0).unwrap().tokens, tokenise(&rendered(&messages)));

        let body = json!({ "prompt": every_byte }).to_string();
        let request = Request::parse("/v1/completions", body.as_bytes()).unwrap();
        assert_eq!(model.prompt(&request, 0).unwrap().tokens, tokenise(&every_byte));
    }
}
