//! `/v1/completions`, and `/generate` of SGLang and vLLM.

use super::{Source, flag, token_ids};
use crate::error::PromptError;
use crate::json::Json;

/// OpenAI's completions.
pub(super) fn completions(body: &Json) -> Result<Source, PromptError> {
    if body.get("prompt_embeds").is_some() {
        return Err(PromptError::unsupported("`prompt_embeds` has no tokens"));
    }
    let prompt = body.get("prompt").ok_or_else(|| PromptError::malformed("there is no `prompt`"))?;
    source(prompt, flag(body, "add_special_tokens", true)?)
        .ok_or_else(|| PromptError::malformed("`prompt` is neither text nor token IDs, nor a list of either"))
}

/// SGLang's own API (`text`, `input_ids`) and vLLM's (`token_ids`).
pub(super) fn generate(body: &Json) -> Result<Source, PromptError> {
    for media in ["image_data", "audio_data", "video_data", "input_embeds", "features"] {
        if body.get(media).is_some_and(Json::is_truthy) {
            return Err(PromptError::unsupported(format!("`{media}` is not supported")));
        }
    }
    let prompt = ["input_ids", "token_ids", "text"].iter().find_map(|field| body.get(field));
    let prompt = prompt.ok_or_else(|| PromptError::malformed("there is neither `text` nor `input_ids`"))?;
    source(prompt, true).ok_or_else(|| {
        PromptError::malformed("the prompt is neither text nor token IDs, nor a list of either")
    })
}

/// A text, token IDs, or the first of a list of either: an engine that gets several prompts gets them all, and the first
/// speaks for them.
fn source(prompt: &Json, special_tokens: bool) -> Option<Source> {
    let text = prompt.as_list().and_then(|list| list.first()).unwrap_or(prompt);
    match text {
        Json::Text(text) => Some(Source::Text { text: text.clone(), special_tokens }),
        _ => token_ids(prompt).map(Source::Tokens),
    }
}
