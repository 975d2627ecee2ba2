//! What the documented rules make of a body, read by serde_json and with nothing resumable about it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use warmroute::prompt::PromptError;
use warmroute::prompt::json::{Name, PromptKind};

use super::Outcome;

/// What serde_json says.
pub(crate) enum Expected {
    /// The body is JSON, and this is in it.
    Outcome(Outcome),
    /// It is none.
    Refused,
    /// serde_json refuses what the scanner may pass over.
    Unknown,
}

const PROMPT_KEYS: [&str; 3] = ["prompt", "token_ids", "input_ids"];

/// Text, where there is no prompt.
const TEXT_KEYS: [&str; 3] = ["messages", "input", "text"];

/// The longest name that is kept.
const NAME_BYTES: usize = 1024;

/// serde_json's complaints about values that are only passed over: their text is no UTF-8 or has half a surrogate
/// pair, their number is no f64, they nest deeper than its stack goes.
const PASSED_OVER: [&str; 5] =
    ["unicode", "surrogate", "hex escape", "number out of range", "recursion limit"];

/// The members of an object in their order, with those that come twice.
struct Members(Vec<(String, Value)>);

pub(crate) fn of(body: &[u8]) -> Expected {
    match serde_json::from_slice(body) {
        Ok(Members(members)) => Expected::Outcome(outcome(&members)),
        Err(error) => {
            let message = error.to_string();
            let is_passed_over = PASSED_OVER.iter().any(|complaint| message.contains(complaint));
            if is_passed_over { Expected::Unknown } else { Expected::Refused }
        }
    }
}

fn outcome(members: &[(String, Value)]) -> Outcome {
    let of = |key| values_of(members, key);
    if PROMPT_KEYS.iter().any(|key| of(key).len() > 1) {
        return Err(PromptError::DuplicatePrompt);
    }
    let mut prompts = PROMPT_KEYS.iter().flat_map(|key| of(key)).filter(|value| !value.is_null());
    let (mut prompt, tokens) = match (prompts.next(), prompts.next()) {
        (_, Some(_)) => return Err(PromptError::DuplicatePrompt),
        (Some(value), None) => read_prompt(value)?,
        (None, None) if TEXT_KEYS.iter().flat_map(|key| of(key)).any(|value| !value.is_null()) => {
            (PromptKind::Text, vec![])
        }
        (None, None) => (PromptKind::Absent, vec![]),
    };
    if of("prompt_embeds").iter().any(|value| !value.is_null()) {
        prompt = PromptKind::Embeds;
    }
    let name = |key| match of(key).last() {
        None | Some(Value::Null) => Name::Absent,
        Some(Value::String(name)) if name.len() <= NAME_BYTES => Name::Known(name.clone()),
        Some(_) => Name::Unknown,
    };
    Ok((prompt, tokens, ["model", "cache_salt", "lora_path", "extra_key"].map(name)))
}

/// All that stand beside a key, in their order.
fn values_of<'a>(members: &'a [(String, Value)], key: &str) -> Vec<&'a Value> {
    members.iter().filter(|(is, _)| is == key).map(|(_, value)| value).collect()
}

fn read_prompt(value: &Value) -> Result<(PromptKind, Vec<u32>), PromptError> {
    let items = match value {
        Value::String(_) => return Ok((PromptKind::Text, vec![])),
        Value::Array(items) => items,
        _ => return Ok((PromptKind::Absent, vec![])),
    };
    let list = match items.first() {
        Some(Value::String(_)) => return Ok((PromptKind::Text, vec![])),
        Some(Value::Array(inner)) => inner,
        _ => items,
    };
    if list.first().is_some_and(|first| !first.is_number()) {
        return Ok((PromptKind::Absent, vec![]));
    }
    let token =
        |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or(PromptError::MalformedBody);
    let tokens = list.iter().map(token).collect::<Result<Vec<u32>, _>>()?;
    Ok((PromptKind::Tokens { count: tokens.len() }, tokens))
}

// === impl Members ===

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}
