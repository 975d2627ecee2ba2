//! Hands the engine the token IDs that the collector has made, in the place of the text, so that it need not make them again.
//!
//! ```text
//! {"prompt":"hello","max_tokens":8}  ->  {"prompt":[15339],"max_tokens":8}        completions
//! {"text":"hello"}                   ->  {"input_ids":[15339]}                    SGLang's generate
//! ```
//!
//! Everything else of the body stays as it is, byte for byte. A body in which not exactly one text is the prompt stays whole.

use std::fmt::{self, Write};

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object in their order: each key, and its value as it was written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

/// Which member has the text, and which gets the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    text: &'static str,
    tokens: &'static str,
}

/// Where a request with this path takes token IDs in place of a text; none: nowhere.
pub(super) fn place(path: &[u8]) -> Option<Place> {
    let path = path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    if path.ends_with(b"/v1/completions") {
        Some(Place { text: "prompt", tokens: "prompt" })
    } else if path.ends_with(b"/generate") {
        Some(Place { text: "text", tokens: "input_ids" })
    } else {
        None
    }
}

/// The body with the tokens in place of its text; none where it has not exactly one text there.
pub(super) fn with_tokens(body: &[u8], place: Place, tokens: &[u32]) -> Option<String> {
    let Members(members) = Members::read(body)?;
    let mut texts = members.iter().filter(|(key, _)| key == place.text);
    let (Some((_, text)), None) = (texts.next(), texts.next()) else { return None };
    if !text.get().starts_with('"') {
        return None;
    }
    let mut handed = String::with_capacity(body.len() + tokens.len() * 7);
    for (key, value) in &members {
        // A null beside the tokens would be a second value for them.
        if key == place.tokens && key != place.text {
            continue;
        }
        handed.push(if handed.is_empty() { '{' } else { ',' });
        if key == place.text {
            // Writing to a String cannot fail.
            let _ = write!(handed, "\"{}\":", place.tokens);
            push_list(&mut handed, tokens);
        } else {
            handed.push_str(&serde_json::to_string(key).ok()?);
            handed.push(':');
            handed.push_str(value.get());
        }
    }
    handed.push('}');
    Some(handed)
}

fn push_list(text: &mut String, tokens: &[u32]) {
    text.push('[');
    for (number, token) in tokens.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{token}");
    }
    text.push(']');
}

// === impl Members ===

impl<'a> Members<'a> {
    fn read(body: &'a [u8]) -> Option<Self> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        let mut json = serde_json::Deserializer::from_slice(body);
        let members = json.deserialize_map(Reader).ok()?;
        json.end().ok()?;
        Some(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(path: &str, body: &str) -> Option<String> {
        with_tokens(body.as_bytes(), place(path.as_bytes())?, &[1, 22, 333])
    }

    #[test]
    fn the_text_gives_way_to_its_tokens_and_the_rest_stays_as_it_is() {
        let cases = [
            ("/v1/completions", r#"{"prompt":"hello"}"#, r#"{"prompt":[1,22,333]}"#),
            (
                "/x/v1/completions?y",
                "{ \"n\": 1.50e0 , \"prompt\": \"a\\\"b\", \"s\": {\"prompt\": \"c\"}, \"k\\u00e9\": \"\\u00e9\"}",
                "{\"n\":1.50e0,\"prompt\":[1,22,333],\"s\":{\"prompt\": \"c\"},\"ké\":\"\\u00e9\"}",
            ),
            ("/generate", r#"{"text":"a","stream":true}"#, r#"{"input_ids":[1,22,333],"stream":true}"#),
            ("/generate", r#"{"input_ids":null,"text":"a"}"#, r#"{"input_ids":[1,22,333]}"#),
        ];
        for (path, body, expected) in cases {
            assert_eq!(handed(path, body).as_deref(), Some(expected), "{body}");
        }
    }

    #[test]
    fn a_body_without_exactly_one_text_stays_whole() {
        let bodies = [
            ("/v1/completions", r#"{"prompt":["a","b"]}"#),
            ("/v1/completions", r#"{"prompt":["a"]}"#),
            ("/v1/completions", r#"{"prompt":"a","prompt":"b"}"#),
            ("/v1/completions", r#"{"messages":[]}"#),
            ("/v1/completions", r#"{"prompt":"a"} x"#),
            ("/v1/completions", r#"["prompt"]"#),
            ("/v1/completions", "{\"prompt\":\"a\",\"x\":\"\u{1}\"}"),
            ("/generate", r#"{"text":["a"]}"#),
            ("/v1/chat/completions", r#"{"prompt":"a","messages":[]}"#),
        ];
        for (path, body) in bodies {
            assert_eq!(handed(path, body), None, "{body}");
        }
    }
}
