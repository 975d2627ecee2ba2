//! Chat templates: Jinja2 as transformers sets it up, on minijinja.
//!
//! What differs between the two engines is set right here: how values are written (`python`), the methods of text
//! (`methods`), the tests and filters below, and `{% generation %}`, which marks what an assistant wrote and changes
//! nothing of the output.

mod clock;
mod format;
mod methods;
mod python;

use std::borrow::Cow;
use std::sync::Arc;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, context};

pub use self::format::ContentFormat;
use crate::json::Json;

/// The variable in which a template's own functions find the time.
const NOW: &str = "__warmroute_now";

/// Instructions that a template of a request may take: a conversation of thousands of messages takes fewer.
const FUEL: u64 = 10_000_000;

const NAME: &str = "chat_template";

/// A chat template, compiled.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    source: Arc<str>,
    format: ContentFormat,
}

/// What a template is given.
#[derive(Clone, Copy, Debug)]
pub struct Variables<'a> {
    /// The messages.
    pub messages: &'a [Json],
    /// The tools, if the request has any.
    pub tools: Option<&'a Json>,
    /// The documents, if it has any.
    pub documents: Option<&'a Json>,
    /// Whether the prompt ends with the head of an answer.
    pub add_generation_prompt: bool,
    /// Everything else: the special tokens, then what the request adds.
    pub others: &'a [(Arc<str>, Json)],
    /// The time, in seconds since 1970.
    pub now: i64,
}

/// Why a template cannot be used, or refuses a conversation.
#[derive(Debug, thiserror::Error)]
#[error("chat template: {0}")]
pub struct TemplateError(String);

// === impl Template ===

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        let mut environment = environment();
        let compiled = without_generation_tags(source).into_owned();
        let format = format::detect(&compiled);
        environment.add_template_owned(NAME, compiled)?;
        Ok(Self { environment, source: Arc::from(source), format })
    }

    /// Compiles a template that someone sent: it may not run for ever.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn untrusted(source: &str) -> Result<Self, TemplateError> {
        let mut template = Self::new(source)?;
        template.environment.set_fuel(Some(FUEL));
        Ok(template)
    }

    /// The text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// How it takes a message's content.
    pub fn format(&self) -> ContentFormat {
        self.format
    }

    /// Renders a conversation.
    ///
    /// # Errors
    ///
    /// The template refuses it, or needs something that is not there.
    pub fn render(&self, variables: Variables<'_>) -> Result<String, TemplateError> {
        let Variables { messages, tools, documents, add_generation_prompt, others, now } = variables;
        let optional = |value: Option<&Json>| value.map_or(Value::from(()), Value::from);
        let others: Value =
            others.iter().map(|(name, value)| (Arc::clone(name), Value::from(value))).collect();
        let own = context! {
            messages => Value::from(messages.iter().map(Value::from).collect::<Vec<_>>()),
            tools => optional(tools),
            documents => optional(documents),
            add_generation_prompt,
            __warmroute_now => now,
        };
        let template = self.environment.get_template(NAME)?;
        Ok(template.render(context! { ..own, ..others })?)
    }
}

impl From<Error> for TemplateError {
    fn from(error: Error) -> Self {
        let mut text = error.to_string();
        let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Self(text)
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, _, value| {
        python::write_str(out, value).map_err(|_| Error::from(ErrorKind::WriteFailure))
    });
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |state: &State<'_, '_>, format: &str| {
        let now = state.lookup(NOW).and_then(|now| now.as_i64()).unwrap_or_default();
        clock::strftime(format, now)
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("cannot format `{format}`")))
    });
    environment.add_filter("tojson", |value: Value, kwargs: Kwargs| python::to_json(&value, &kwargs));
    environment.add_filter("trim", |text: &str, chars: Option<&str>| match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_owned(),
        None => text.trim_matches(python::is_space).to_owned(),
    });
    environment.add_filter("string", |value: Value| text_of(&value));
    environment.add_filter("join", |values: Value, separator: Option<&str>| -> Result<String, Error> {
        let items: Vec<_> = values.try_iter()?.map(|value| text_of(&value)).collect();
        Ok(items.join(separator.unwrap_or("")))
    });
    // What has a length and items: to Python texts and mappings have, too.
    environment.add_test("sequence", |value: Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    environment.add_test("iterable", |value: Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable)
    });
    environment
}

fn text_of(value: &Value) -> String {
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = python::write_str(&mut text, value);
    text
}

/// `{% generation %}` and its end as a block that changes nothing and keeps its names to itself, as the call block does
/// that transformers makes of it.
fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("{%") {
        out.push_str(before);
        out.push_str("{%");
        let Some((inside, after)) = tag.split_once("%}") else {
            rest = tag;
            break;
        };
        let name = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let block = match name {
            "generation" => Some("with"),
            "endgeneration" => Some("endwith"),
            _ => None,
        };
        match block {
            Some(block) => {
                out.push_str(&inside.replacen(name, block, 1));
                out.push_str("%}");
                rest = after;
            }
            None => rest = tag,
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests;
