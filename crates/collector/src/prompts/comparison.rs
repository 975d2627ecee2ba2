//! A model's files held against an engine.

use std::sync::Arc;

use bytes::Bytes;
use warmroute_prompts::{Json, Model, Request};

use super::engine::{Engine, EngineError};
use super::pool::now;

/// How the tokens of a request compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// They are the same, or both refuse the request.
    Equal,
    /// They are not; where, and how many there are.
    Different(String),
    /// The engine did not tell.
    Unknown(String),
}

/// What is compared first: a text, and chats with what templates treat each in their own way. `model`: the name that the
/// engine serves, where it is known.
pub fn probes(model: Option<&str>) -> Vec<(&'static str, Bytes)> {
    const CHAT: &str = "/v1/chat/completions";
    let bodies = [
        ("/v1/completions", r#"{"prompt":"The quick brown fox: 3.14159 Größe, 你好!\n\n  👋🏽 it's\t<end>"}"#),
        (CHAT, r#"{"messages":[{"role":"user","content":"hi"}]}"#),
        (
            CHAT,
            r#"{"messages":[{"role":"system","content":"Be brief. "},{"role":"user","content":"  naïve 你好\n"},
            {"role":"assistant","content":"<think>\nhm\n</think>\n\nyes "},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}"#,
        ),
        (
            CHAT,
            r#"{"messages":[{"role":"user","content":"weather?"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",
            "function":{"name":"get_weather","arguments":"{\"unit\": \"c\", \"city\": \"Zürich\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"{\"t\": 21.5}"}],
            "tools":[{"type":"function","function":{"name":"get_weather","description":"The weather <now>","parameters":{"type":"object",
            "properties":{"unit":{"type":"string","enum":["c","f"]},"city":{"type":"string"}},"required":["city"]}}}]}"#,
        ),
        (
            CHAT,
            r#"{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"enable_thinking":false}}"#,
        ),
    ];
    bodies
        .into_iter()
        .map(|(path, body)| {
            let mut body = Json::parse(body.as_bytes()).unwrap_or_default();
            if let Some(model) = model {
                body.set("model", Json::text(model));
            }
            (path, Bytes::from(body.to_string()))
        })
        .collect()
}

/// Compares one request. The local half is work for a thread of its own; it is done first.
pub async fn compare(model: &Arc<Model>, engine: &Engine, path: &str, body: &Bytes) -> Comparison {
    let Ok(request) = Request::parse(path, body) else { return Comparison::Equal };
    let local = {
        let (model, request) = (Arc::clone(model), request.clone());
        match tokio::task::spawn_blocking(move || model.prompt(&request, now())).await {
            Ok(local) => local,
            Err(error) => return Comparison::Unknown(error.to_string()),
        }
    };
    match (local, engine.tokens(&request, path, body).await) {
        (Ok(local), Ok(asked)) if local == asked => Comparison::Equal,
        (Ok(local), Ok(asked)) => {
            let place = local.tokens.iter().zip(&asked.tokens).position(|(own, other)| own != other);
            let place = place.unwrap_or(local.tokens.len().min(asked.tokens.len()));
            Comparison::Different(format!(
                "at token {place}: {:?} here, {:?} there ({} and {} tokens)",
                local.tokens.get(place),
                asked.tokens.get(place),
                local.tokens.len(),
                asked.tokens.len()
            ))
        }
        (Err(_), Err(EngineError::Refused { .. })) => Comparison::Equal,
        (Ok(_), Err(EngineError::Refused { status: 400 | 422, message })) => {
            Comparison::Different(format!("the engine refuses what is rendered here: {message}"))
        }
        (Err(error), Ok(_)) => {
            Comparison::Different(format!("the engine takes what is refused here: {error}"))
        }
        (_, Err(error)) => Comparison::Unknown(error.to_string()),
    }
}
