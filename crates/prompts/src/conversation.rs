//! What becomes of the messages before the template sees them: vLLM's rules (release 0.32, `renderers/chat_utils.py` and
//! `renderers/hf.py`), then those of transformers (`apply_chat_template`).

use crate::error::PromptError;
use crate::json::Json;
use crate::template::ContentFormat;

/// Stands in the rendered text where a part begins whose tokens are not known. Of private use, so in no template, and
/// no white space, so never trimmed.
pub(crate) const CUT: &str = "\u{F8FE}\u{E0A5}cut\u{E0A5}\u{F8FE}";

const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// The messages as the template gets them, and whether some part of them is not known.
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Json>,
    pub(crate) is_cut: bool,
}

// === impl Conversation ===

impl Conversation {
    /// Converts what was sent. `knows_developer`: whether the template has that role.
    pub(crate) fn new(
        sent: &[Json],
        format: ContentFormat,
        knows_developer: bool,
    ) -> Result<Self, PromptError> {
        let mut is_cut = false;
        let mut messages =
            sent.iter().map(|sent| message(sent, format, &mut is_cut)).collect::<Result<Vec<_>, _>>()?;
        let is_developer = |message: &Json| message.get_str("role") == Some("developer");
        if !knows_developer && messages.iter().any(is_developer) {
            for message in messages.iter_mut().filter(|message| is_developer(message)) {
                message.set("role", Json::text("system"));
                message.set("tools", Json::Null);
            }
            messages = with_one_system(messages);
        }
        messages.iter_mut().for_each(normalize);
        Ok(Self { messages, is_cut })
    }
}

fn message(sent: &Json, format: ContentFormat, is_cut: &mut bool) -> Result<Json, PromptError> {
    let role = sent.get_str("role").ok_or_else(|| PromptError::malformed("a message has no `role`"))?;
    let mut parts = match sent.get("content") {
        None => Vec::new(),
        Some(text @ Json::Text(_)) => vec![text.clone()],
        Some(Json::List(parts)) => parts.clone(),
        Some(_) => return Err(PromptError::malformed("a message's `content` is neither text nor a list")),
    };
    if role == "system" {
        parts = parts.iter().filter_map(without_billing_header).collect();
    }
    let content = content(&parts, format, is_cut)?;
    let mut message = Json::object([("role", Json::text(role)), ("content", content)]);
    match role {
        "assistant" => {
            if let Some(calls) = sent.get("tool_calls") {
                let calls =
                    calls.as_list().ok_or_else(|| PromptError::malformed("`tool_calls` is no list"))?;
                // An empty list is left out, so that templates take the ordinary way.
                if !calls.is_empty() {
                    let calls = calls.iter().map(tool_call).collect::<Result<_, _>>()?;
                    message.set("tool_calls", Json::List(calls));
                }
            }
            if let Some(reasoning) = sent.get("reasoning").or_else(|| sent.get("reasoning_content")) {
                message.set("reasoning", reasoning.clone());
                message.set("reasoning_content", reasoning.clone());
            }
        }
        "tool" => {
            if let Some(id) = sent.get("tool_call_id") {
                message.set("tool_call_id", id.clone());
            }
            if let Some(joined) = joined_text(&message) {
                message.set("content", joined);
            }
        }
        "developer" => message.set("tools", sent.get("tools").cloned().unwrap_or_default()),
        _ => {}
    }
    for field in ["name", "task"] {
        if let Some(name @ Json::Text(_)) = sent.get(field) {
            message.set(field, name.clone());
        }
    }
    Ok(message)
}

/// A content in the template's format. Where a part is not known, [`CUT`] stands: among parts at its place, in a text
/// before everything, since that is where vLLM puts the placeholders of media.
fn content(parts: &[Json], format: ContentFormat, is_cut: &mut bool) -> Result<Json, PromptError> {
    let mut known = Vec::with_capacity(parts.len());
    let mut has_unknown = false;
    for part in parts {
        let kind = match part {
            Json::Text(_) => "text",
            part => part.get_str("type").unwrap_or(""),
        };
        let text = match (part, kind) {
            (Json::Text(_), _) => part.clone(),
            (_, "text" | "input_text" | "output_text") => part.get("text").cloned().unwrap_or_default(),
            (_, "refusal" | "thinking") => part.get(kind).cloned().unwrap_or_default(),
            _ => {
                has_unknown = true;
                if format == ContentFormat::Parts {
                    known.push(Json::text(CUT));
                }
                continue;
            }
        };
        match text {
            // vLLM leaves such a part out.
            Json::Null => {}
            Json::Text(text) if text.is_empty() && format == ContentFormat::Text => {}
            Json::Text(_) => known.push(text),
            _ => return Err(PromptError::malformed(format!("a part of type `{kind}` has no text"))),
        }
    }
    *is_cut |= has_unknown;
    Ok(match format {
        ContentFormat::Parts => {
            let part = |text| Json::object([("type", Json::text("text")), ("text", text)]);
            Json::List(known.into_iter().map(part).collect())
        }
        ContentFormat::Text => {
            let texts: Vec<_> = known.iter().filter_map(Json::as_str).collect();
            Json::text(&format!("{}{}", if has_unknown { CUT } else { "" }, texts.join("\n")))
        }
    })
}

/// A tool's content is one text even where the template takes parts.
fn joined_text(message: &Json) -> Option<Json> {
    let parts = message.get("content")?.as_list()?;
    let texts: Vec<_> = parts.iter().map(|part| part.get_str("text").unwrap_or("")).collect();
    Some(Json::text(&texts.join("\n")))
}

/// Some clients begin a system prompt with a line that is another on each request; vLLM drops it.
fn without_billing_header(part: &Json) -> Option<Json> {
    let text =
        part.as_str().or_else(|| part.get_str("text").filter(|_| part.get_str("type") == Some("text")));
    let Some(text) = text.filter(|text| text.starts_with(BILLING_HEADER)) else {
        return Some(part.clone());
    };
    let rest = text.split_once('\n').map(|(_, rest)| rest).filter(|rest| !rest.is_empty())?;
    Some(Json::text(rest))
}

/// A call's arguments are an object, whatever the client wrote: templates expect one.
fn tool_call(call: &Json) -> Result<Json, PromptError> {
    let function = call.get("function").filter(|function| function.as_object().is_some());
    let kind = call.get_str("type").unwrap_or("function");
    let Some(function) = function.filter(|_| kind == "function") else {
        return Err(PromptError::malformed("a call in `tool_calls` is not of a function"));
    };
    let arguments = match function.get("arguments") {
        Some(arguments @ Json::Object(_)) => arguments.clone(),
        Some(Json::Text(text)) => Json::parse(text.as_bytes()).unwrap_or_default(),
        _ => Json::Null,
    };
    let arguments = if arguments.as_object().is_some() { arguments } else { Json::Object(vec![]) };
    let (mut call, mut function) = (call.clone(), function.clone());
    function.set("arguments", arguments);
    call.set("function", function);
    Ok(call)
}

/// Puts all system messages into one, first.
pub(crate) fn with_one_system(messages: Vec<Json>) -> Vec<Json> {
    let is_system = |message: &Json| message.get_str("role") == Some("system");
    if !messages.iter().skip(1).any(is_system) {
        return messages;
    }
    let text = |message: &Json| match message.get("content") {
        Some(Json::List(parts)) => {
            let texts: Vec<_> = parts.iter().filter_map(|part| part.get_str("text")).collect();
            texts.join("\n")
        }
        content => content.and_then(Json::as_str).unwrap_or("").to_owned(),
    };
    let texts: Vec<_> =
        messages.iter().filter(|m| is_system(m)).map(text).filter(|text| !text.is_empty()).collect();
    let merged = Json::object([("role", Json::text("system")), ("content", Json::text(&texts.join("\n\n")))]);
    let others = messages.into_iter().filter(|message| !is_system(message));
    std::iter::once(merged).chain(others).collect()
}

/// transformers leaves null out and gives the reasoning every name that templates read it under.
fn normalize(message: &mut Json) {
    let reasoning =
        ["reasoning_content", "thinking", "reasoning"].iter().find_map(|name| message.get(name)).cloned();
    if let Some(reasoning) = reasoning {
        if message.get("thinking").is_none() {
            message.set("thinking", reasoning.clone());
        }
        message.set("reasoning_content", reasoning);
    }
    if let Json::Object(fields) = message {
        fields.retain(|(_, value)| *value != Json::Null);
    }
}
