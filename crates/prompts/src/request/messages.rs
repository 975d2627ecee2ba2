//! Anthropic's `/v1/messages`, translated to a chat as vLLM does.

use super::chat::tool;
use super::{ChatRequest, Source};
use crate::error::PromptError;
use crate::json::Json;

/// A line that some clients send first, other on each request. It is no part of the prompt.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Anthropic's messages.
pub(super) fn messages(body: &Json) -> Result<Source, PromptError> {
    let Some(Json::List(sent)) = body.get("messages") else {
        return Err(PromptError::malformed("`messages` is no list of messages"));
    };
    let mut messages = Vec::new();
    if let Some(text) = body.get("system").and_then(system_text) {
        messages.push(message("system", Json::text(&text)));
    }
    sent.iter().try_for_each(|message| add(message, &mut messages))?;
    let tools = match body.get("tools") {
        None => None,
        Some(Json::List(tools)) => Some(Json::List(tools.iter().map(function).collect::<Result<_, _>>()?)),
        Some(_) => return Err(PromptError::malformed("`tools` is no list")),
    };
    let mut chat = ChatRequest {
        messages,
        tools,
        add_generation_prompt: true,
        may_merge_system: true,
        ..ChatRequest::default()
    };
    let effort = match body.get("thinking").and_then(|thinking| thinking.get_str("type")) {
        Some("disabled") => Some(Json::text("none")),
        _ => body.get("output_config").and_then(|output| output.get("effort")).cloned(),
    };
    chat.variables(body.get("chat_template_kwargs"), effort.as_ref())?;
    Ok(Source::Chat(chat))
}

fn message(role: &str, content: Json) -> Json {
    Json::object([("role", Json::text(role)), ("content", content)])
}

/// The texts of a system prompt, one after another.
fn system_text(content: &Json) -> Option<String> {
    let text = match content {
        // Only blocks are searched for the billing line at the top; inside the messages texts are, too.
        Json::Text(text) => text.to_string(),
        Json::List(blocks) => texts(blocks),
        _ => String::new(),
    };
    (!text.is_empty()).then_some(text)
}

fn texts(blocks: &[Json]) -> String {
    let texts = blocks.iter().filter(|block| block.get_str("type") == Some("text"));
    texts.filter_map(|block| block.get_str("text")).filter(|text| !text.starts_with(BILLING_HEADER)).collect()
}

fn add(sent: &Json, messages: &mut Vec<Json>) -> Result<(), PromptError> {
    let role = sent.get_str("role").ok_or_else(|| PromptError::malformed("a message has no `role`"))?;
    let content = sent.get("content");
    if role == "system" {
        let text = content.and_then(system_text).filter(|text| !text.starts_with(BILLING_HEADER));
        messages.extend(text.map(|text| message("system", Json::text(&text))));
        return Ok(());
    }
    let blocks = match content {
        Some(Json::List(blocks)) => blocks,
        Some(text @ Json::Text(_)) => {
            messages.push(message(role, text.clone()));
            return Ok(());
        }
        _ => return Err(PromptError::malformed("a message has no `content`")),
    };
    let (mut parts, mut calls, mut thoughts) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks {
        match block.get_str("type").unwrap_or("") {
            "text" => {
                let text = block.get("text").filter(|text| text.is_truthy());
                parts.extend(
                    text.map(|text| Json::object([("type", Json::text("text")), ("text", text.clone())])),
                );
            }
            "thinking" => thoughts.extend(block.get_str("thinking")),
            "redacted_thinking" | "tool_reference" => {}
            "tool_use" => calls.push(Json::object([
                ("id", block.get("id").cloned().unwrap_or_default()),
                ("type", Json::text("function")),
                (
                    "function",
                    Json::object([
                        ("name", block.get("name").cloned().unwrap_or_else(|| Json::text(""))),
                        ("arguments", block.get("input").cloned().unwrap_or_else(|| Json::Object(vec![]))),
                    ]),
                ),
            ])),
            "tool_result" if role == "user" => tool_result(block, messages)?,
            kind @ ("tool_result" | "tool_addition" | "tool_removal") => {
                return Err(PromptError::unsupported(format!(
                    "a block of type `{kind}` is not supported here"
                )));
            }
            // An image, or what is not known: it ends the prefix.
            _ => parts.push(block.clone()),
        }
    }
    let mut own = Json::object([("role", Json::text(role))]);
    if !thoughts.is_empty() {
        own.set("reasoning", Json::text(&thoughts.concat()));
    }
    if !calls.is_empty() {
        own.set("tool_calls", Json::List(calls));
    }
    let content = match parts.as_slice() {
        [] => None,
        [part] if part.get_str("type") == Some("text") => part.get("text").cloned(),
        _ => Some(Json::List(parts)),
    };
    let has_content = content.is_some();
    if let Some(content) = content {
        own.set("content", content);
    }
    if role != "user" || has_content {
        messages.push(own);
    }
    Ok(())
}

/// A tool's result is a message of its own, before the rest of the user's.
fn tool_result(block: &Json, messages: &mut Vec<Json>) -> Result<(), PromptError> {
    let text = match block.get("content") {
        Some(Json::Text(text)) => text.to_string(),
        Some(Json::List(items)) => {
            if items.iter().any(|item| item.get_str("type") != Some("text")) {
                let message = "a tool's result that is more than text is not supported";
                return Err(PromptError::unsupported(message));
            }
            let texts: Vec<_> = items.iter().map(|item| item.get_str("text").unwrap_or("")).collect();
            texts.join("\n")
        }
        _ => String::new(),
    };
    messages.push(Json::object([
        ("role", Json::text("tool")),
        ("tool_call_id", block.get("tool_use_id").cloned().unwrap_or_else(|| Json::text(""))),
        ("content", Json::text(&text)),
    ]));
    Ok(())
}

fn function(sent: &Json) -> Result<Json, PromptError> {
    let field = |name: &str| sent.get(name).cloned().unwrap_or_default();
    tool(&Json::object([(
        "function",
        Json::object([
            ("name", field("name")),
            ("description", field("description")),
            ("parameters", field("input_schema")),
            ("strict", field("strict")),
            ("defer_loading", field("defer_loading")),
        ]),
    )]))
}
