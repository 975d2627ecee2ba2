//! `/v1/responses`, translated to a chat as vLLM does.

use std::sync::Arc;

use super::chat::tool;
use super::{ChatRequest, Source};
use crate::error::PromptError;
use crate::json::Json;

/// OpenAI's responses. What an earlier response holds is not known here.
pub(super) fn responses(body: &Json) -> Result<Source, PromptError> {
    for field in ["previous_response_id", "conversation", "prompt", "previous_input_messages"] {
        if body.get(field).is_some() {
            return Err(PromptError::unsupported(format!("`{field}` names what is not in the body")));
        }
    }
    let mut messages = Vec::new();
    if let Some(instructions) = body.get("instructions").filter(|text| text.is_truthy()) {
        messages.push(message("system", instructions.clone()));
    }
    let mut is_continued = false;
    match body.get("input") {
        Some(text @ Json::Text(_)) => messages.push(message("user", text.clone())),
        Some(Json::List(items)) => {
            is_continued = items.last().is_some_and(is_unfinished);
            items.iter().try_for_each(|item| add(item, &mut messages))?;
        }
        _ => return Err(PromptError::malformed("`input` is neither text nor a list")),
    }
    let mut chat = ChatRequest {
        messages,
        tools: tools(body)?,
        add_generation_prompt: !is_continued,
        continue_final_message: is_continued,
        special_tokens: true,
        ..ChatRequest::default()
    };
    let effort = body.get("reasoning").and_then(|reasoning| reasoning.get("effort"));
    chat.variables(body.get("chat_template_kwargs"), effort)?;
    Ok(Source::Chat(chat))
}

fn message(role: &str, content: Json) -> Json {
    Json::object([("role", Json::text(role)), ("content", content)])
}

/// Whether a request that ends with this item asks to go on with it.
fn is_unfinished(item: &Json) -> bool {
    matches!(item.get_str("type").unwrap_or("message"), "message" | "reasoning")
        && matches!(item.get_str("status"), Some("in_progress" | "incomplete"))
}

/// Adds an item: some items are parts of the assistant's message before them.
fn add(item: &Json, messages: &mut Vec<Json>) -> Result<(), PromptError> {
    let kind = item.get_str("type").unwrap_or("message");
    let role = item.get_str("role");
    match kind {
        "function_call" | "custom_tool_call" => {
            let call = tool_call(item, kind == "custom_tool_call")?;
            match last_assistant(messages).map(|message| (message.get("tool_calls").cloned(), message)) {
                Some((Some(Json::List(mut calls)), message)) => {
                    calls.push(call);
                    message.set("tool_calls", Json::List(calls));
                }
                Some((_, message)) => message.set("tool_calls", Json::List(vec![call])),
                None => messages.push(Json::object([
                    ("role", Json::text("assistant")),
                    ("tool_calls", Json::List(vec![call])),
                ])),
            }
        }
        "reasoning" => {
            if item.get("encrypted_content").is_some() {
                return Err(PromptError::unsupported("reasoning is encrypted"));
            }
            let text = ["content", "summary"].iter().find_map(|field| first_text(item.get(field)?));
            add_to_assistant(messages, "reasoning", text.unwrap_or_else(|| Json::text("")));
        }
        "function_call_output" | "custom_tool_call_output" => messages.push(Json::object([
            ("role", Json::text("tool")),
            ("content", item.get("output").cloned().unwrap_or_default()),
            ("tool_call_id", item.get("call_id").cloned().unwrap_or_default()),
        ])),
        "message" if role == Some("assistant") => match item.get("content") {
            Some(text @ Json::Text(_)) => add_to_assistant(messages, "content", text.clone()),
            Some(parts) if first_text(parts).is_some() => {
                let text = first_text(parts).unwrap_or_default();
                add_to_assistant(messages, "content", text);
            }
            _ => messages.push(item.clone()),
        },
        "message" if role.is_some() => messages.push(item.clone()),
        _ => return Err(PromptError::unsupported(format!("an input of type `{kind}` is not supported"))),
    }
    Ok(())
}

fn last_assistant(messages: &mut [Json]) -> Option<&mut Json> {
    messages.last_mut().filter(|message| message.get_str("role") == Some("assistant"))
}

/// Fills a gap in the assistant's message before, or begins a new one.
fn add_to_assistant(messages: &mut Vec<Json>, field: &str, text: Json) {
    match last_assistant(messages).filter(|message| message.get(field).is_none()) {
        Some(message) => message.set(field, text),
        None => messages.push(Json::object([("role", Json::text("assistant")), (field, text)])),
    }
}

fn first_text(parts: &Json) -> Option<Json> {
    parts.as_list()?.first()?.get("text").filter(|text| text.as_str().is_some()).cloned()
}

fn tool_call(item: &Json, is_custom: bool) -> Result<Json, PromptError> {
    if item.get("namespace").is_some() {
        return Err(PromptError::unsupported("calls of tools in namespaces are not supported"));
    }
    let name = item.get("name").cloned().ok_or_else(|| PromptError::malformed("a call has no `name`"))?;
    let arguments = if is_custom {
        Json::object([("input", item.get("input").cloned().unwrap_or_else(|| Json::text("")))])
    } else {
        item.get("arguments").cloned().unwrap_or_default()
    };
    Ok(Json::object([
        ("id", item.get("call_id").cloned().unwrap_or_default()),
        ("function", Json::object([("name", name), ("arguments", arguments)])),
        ("type", Json::text("function")),
    ]))
}

/// Functions alone reach the template.
fn tools(body: &Json) -> Result<Option<Json>, PromptError> {
    let Some(tools) = body.get("tools").and_then(Json::as_list).filter(|tools| !tools.is_empty()) else {
        return Ok(None);
    };
    let mut functions = Vec::new();
    for entry in tools {
        match entry.get_str("type") {
            Some("function") => {
                let fields = entry.as_object().unwrap_or_default().iter();
                let function = fields.filter(|(name, _)| **name != *"type").cloned().collect();
                let wrapped = Json::Object(vec![(Arc::from("function"), Json::Object(function))]);
                functions.push(tool(&wrapped)?);
            }
            Some(kind @ ("namespace" | "custom")) => {
                return Err(PromptError::unsupported(format!("a tool of type `{kind}` is not supported")));
            }
            _ => {}
        }
    }
    Ok(Some(Json::List(functions)))
}
