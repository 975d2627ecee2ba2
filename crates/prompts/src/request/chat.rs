//! `/v1/chat/completions`, as vLLM reads it.

use std::sync::Arc;

use super::{ChatRequest, Source, flag, token_ids};
use crate::error::PromptError;
use crate::json::Json;

/// Variables that a client may not set: they are arguments of what renders the template.
const RESERVED: [&str; 2] = ["chat_template", "tokenize"];

/// OpenAI's chat completions.
pub(super) fn chat(body: &Json) -> Result<Source, PromptError> {
    // Token IDs beside the messages stand for them (SGLang, TensorRT-LLM).
    if let Some(ids) = ["input_ids", "prompt_token_ids"].iter().find_map(|field| body.get(field)) {
        let ids = token_ids(ids).ok_or_else(|| PromptError::malformed("the token IDs are none"))?;
        return Ok(Source::Tokens(ids));
    }
    let messages = match body.get("messages") {
        Some(Json::List(messages)) if !messages.is_empty() => messages.clone(),
        _ => return Err(PromptError::malformed("`messages` is no list of messages")),
    };
    let add_generation_prompt = flag(body, "add_generation_prompt", true)?;
    let continue_final_message = flag(body, "continue_final_message", false)?;
    let tools = match body.get("tools") {
        None => None,
        Some(Json::List(tools)) => Some(Json::List(tools.iter().map(tool).collect::<Result<_, _>>()?)),
        Some(_) => return Err(PromptError::malformed("`tools` is no list")),
    };
    let template = match body.get("chat_template") {
        None => None,
        Some(Json::Text(template)) => Some(Arc::clone(template)),
        Some(_) => return Err(PromptError::malformed("`chat_template` is no text")),
    };
    let mut chat = ChatRequest {
        messages,
        tools,
        template,
        add_generation_prompt,
        continue_final_message,
        special_tokens: flag(body, "add_special_tokens", false)?,
        ..ChatRequest::default()
    };
    chat.variables(body.get("chat_template_kwargs"), body.get("reasoning_effort"))?;
    if let Some(documents) = body.get("documents") {
        chat.documents = Some(documents.clone());
    }
    chat.check()?;
    Ok(Source::Chat(chat))
}

// === impl ChatRequest ===

impl ChatRequest {
    /// Takes over what the client sets for the template. Null and `auto` leave a variable as it is; a set effort switches
    /// thinking on or off, unless the client does that itself.
    pub(super) fn variables(
        &mut self,
        kwargs: Option<&Json>,
        effort: Option<&Json>,
    ) -> Result<(), PromptError> {
        let kwargs = match kwargs {
            None => &[],
            Some(kwargs) => kwargs
                .as_object()
                .ok_or_else(|| PromptError::malformed("`chat_template_kwargs` is no object"))?,
        };
        let mut variables = Json::Object(kwargs.to_vec());
        if let Some(effort) = effort.filter(|effort| effort.as_str() != Some("auto")) {
            variables.set("reasoning_effort", effort.clone());
            if kwargs.iter().all(|(name, _)| **name != *"enable_thinking") {
                variables.set("enable_thinking", Json::Bool(effort.as_str() != Some("none")));
            }
        }
        let Json::Object(variables) = variables else { return Ok(()) };
        for (name, value) in variables {
            if RESERVED.contains(&&*name) {
                let message = format!("`chat_template_kwargs` may not have `{name}`");
                return Err(PromptError::malformed(message));
            }
            if value == Json::Null || value.as_str() == Some("auto") {
                continue;
            }
            match &*name {
                "tools" => self.tools = Some(value),
                "documents" => self.documents = Some(value),
                // The request's own fields always have a value, and win.
                "add_generation_prompt" | "continue_final_message" | "messages" => {}
                _ => self.variables.push((name, value)),
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), PromptError> {
        if self.continue_final_message && self.add_generation_prompt {
            let message = "`continue_final_message` goes only with `add_generation_prompt: false`";
            return Err(PromptError::malformed(message));
        }
        Ok(())
    }
}

/// A tool as vLLM hands it to a template: its known fields, in their order, with null for a missing description or schema.
pub(super) fn tool(tool: &Json) -> Result<Json, PromptError> {
    let function = tool.get("function").unwrap_or(&Json::Null);
    let name = function.get("name").filter(|name| name.as_str().is_some());
    let name = name.ok_or_else(|| PromptError::malformed("a tool has no function with a name"))?;
    let field = |field: &str| function.get(field).cloned().unwrap_or_default();
    let mut known = Json::object([
        ("name", name.clone()),
        ("description", field("description")),
        ("parameters", field("parameters")),
    ]);
    let deferred = tool.get("defer_loading");
    for (name, value) in
        [("strict", function.get("strict")), ("defer_loading", function.get("defer_loading").or(deferred))]
    {
        if let Some(value) = value {
            known.set(name, value.clone());
        }
    }
    let mut tool = Json::object([("type", Json::text("function")), ("function", known)]);
    if let Some(deferred) = deferred {
        tool.set("defer_loading", deferred.clone());
    }
    Ok(tool)
}
