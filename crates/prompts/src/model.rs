//! A model: its tokenizer, its chat templates, and the way from a request to tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::conversation::{CUT, Conversation, with_one_system};
use crate::error::{ModelError, PromptError};
use crate::json::Json;
use crate::request::{ChatRequest, Request, Source};
use crate::template::{ContentFormat, Template, TemplateError, Variables};
use crate::tokens::TextTokenizer;

/// What transformers appends to a message that is to be gone on with, to find its end in the rendered text.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// How a model is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A template in place of the model's own, as the engine's `--chat-template`.
    pub chat_template: Option<PathBuf>,
    /// How content is handed to the template, as `--chat-template-content-format`; none: as its syntax says.
    pub content_format: Option<ContentFormat>,
    /// Variables for the template, a JSON object, as `--default-chat-template-kwargs`.
    pub template_variables: Option<String>,
    /// Whether a request may bring its own template, as `--trust-request-chat-template`.
    pub trust_request_template: bool,
    /// The most bytes of texts and tokens that are remembered.
    pub cache_bytes: usize,
}

/// A model's tokenizer and templates.
#[derive(Debug)]
pub struct Model {
    tokenizer: TextTokenizer,
    /// By name; `default` is the ordinary one, `tool_use` the one for requests with tools.
    templates: Vec<(Arc<str>, Template)>,
    special_tokens: Vec<(Arc<str>, Json)>,
    options: Options,
    defaults: Vec<(Arc<str>, Json)>,
}

/// A prompt before it is tokenized.
#[derive(Clone, Debug, PartialEq)]
pub enum Rendered {
    /// There is nothing to tokenize.
    Tokens(Vec<u32>),
    /// A text.
    Text {
        /// The text.
        text: Arc<str>,
        /// Whether the tokenizer puts its special tokens around it.
        special_tokens: bool,
        /// Whether that is all; else the prompt goes on with something whose tokens are not known.
        is_whole: bool,
    },
}

/// A prompt's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Whether these are all; else the prompt goes on with something whose tokens are not known.
    pub is_whole: bool,
}

/// Whether a field of `tokenizer_config.json` is the name of a special token.
pub(crate) fn is_special_token(field: &str) -> bool {
    field.ends_with("_token") && !field.starts_with("add_")
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            chat_template: None,
            content_format: None,
            template_variables: None,
            trust_request_template: false,
            cache_bytes: 64 << 20,
        }
    }
}

// === impl Model ===

impl Model {
    /// Reads a model's folder: `tokenizer.json`; `tokenizer_config.json` and `chat_template.jinja` if they are there.
    ///
    /// # Errors
    ///
    /// A file cannot be read or used.
    pub fn load(folder: &Path, options: Options) -> Result<Self, ModelError> {
        let optional = |name: &str| -> Result<Option<(PathBuf, Vec<u8>)>, ModelError> {
            let path = folder.join(name);
            path.exists().then(|| Ok((path.clone(), read(&path)?))).transpose()
        };
        let config_file = optional("tokenizer_config.json")?;
        let (config, ordered) = match &config_file {
            Some((path, bytes)) => (parse(path, bytes)?, parse(path, bytes)?),
            None => (serde_json::Value::Null, Json::Null),
        };
        let path = folder.join("tokenizer.json");
        let tokenizer = TextTokenizer::new(&read(&path)?, &config, options.cache_bytes)
            .map_err(|error| invalid(&path, error.to_string()))?;
        let template_file = match &options.chat_template {
            Some(path) => Some((path.clone(), read(path)?)),
            None => optional("chat_template.jinja")?,
        };
        let templates = match template_file {
            Some((path, bytes)) => {
                let source =
                    String::from_utf8(bytes).map_err(|_| invalid(&path, "it is no UTF-8".to_owned()))?;
                vec![(Arc::from("default"), compiled(&path, &source)?)]
            }
            None => match (&config_file, ordered.get("chat_template")) {
                (Some((path, _)), Some(value)) => templates(path, value)?,
                _ => Vec::new(),
            },
        };
        let named = ordered.as_object().unwrap_or_default().iter().filter(|(name, _)| is_special_token(name));
        let special_tokens = named.filter_map(|(name, token)| {
            let token = token.as_str().or_else(|| token.get_str("content"))?;
            Some((Arc::clone(name), Json::text(token)))
        });
        let special_tokens = special_tokens.collect();
        let defaults = match &options.template_variables {
            None => Vec::new(),
            Some(text) => {
                let path = Path::new("template variables");
                match parse(path, text.as_bytes())? {
                    Json::Object(fields) => fields,
                    _ => return Err(invalid(path, "they are no JSON object".to_owned())),
                }
            }
        };
        Ok(Self { tokenizer, templates, special_tokens, options, defaults })
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &TextTokenizer {
        &self.tokenizer
    }

    /// The tokens of a request's prompt. `now` is the time in seconds since 1970: some templates write the date.
    ///
    /// # Errors
    ///
    /// The template or the tokenizer refuses it.
    pub fn prompt(&self, request: &Request, now: i64) -> Result<Prompt, PromptError> {
        self.tokenize(&self.render(request, now)?, &|| true)
    }

    /// The text of a request's prompt.
    ///
    /// # Errors
    ///
    /// There is no template, or it refuses the conversation.
    pub fn render(&self, request: &Request, now: i64) -> Result<Rendered, PromptError> {
        match &request.source {
            Source::Tokens(tokens) => Ok(Rendered::Tokens(tokens.clone())),
            Source::Text { text, special_tokens } => {
                Ok(Rendered::Text { text: Arc::clone(text), special_tokens: *special_tokens, is_whole: true })
            }
            Source::Chat(chat) => self.chat(chat, now),
        }
    }

    /// The tokens of a rendered prompt.
    ///
    /// # Errors
    ///
    /// The tokenizer refuses it, or `wanted` has said between two pieces of the text that nobody waits for it any more.
    pub fn tokenize(&self, rendered: &Rendered, wanted: &dyn Fn() -> bool) -> Result<Prompt, PromptError> {
        let (tokens, is_whole) = match rendered {
            Rendered::Tokens(tokens) => (tokens.clone(), true),
            Rendered::Text { text, special_tokens, is_whole: true } => {
                (self.tokenizer.encode(text, *special_tokens, wanted)?, true)
            }
            Rendered::Text { text, special_tokens, is_whole: false } => {
                (self.tokenizer.encode_prefix(text, *special_tokens, wanted)?, false)
            }
        };
        Ok(Prompt { tokens, is_whole })
    }

    fn chat(&self, chat: &ChatRequest, now: i64) -> Result<Rendered, PromptError> {
        let own;
        let template = match self.template(chat)? {
            Some(template) => template,
            None => {
                own = Template::untrusted(chat.template.as_deref().unwrap_or_default())?;
                &own
            }
        };
        let format = self.options.content_format.unwrap_or(template.format());
        let knows_developer =
            ["\"developer\"", "'developer'"].iter().any(|role| template.source().contains(role));
        let mut sent = chat.messages.clone();
        if chat.may_merge_system && !takes_late_system(template, now) {
            sent = with_one_system(sent);
        }
        let Conversation { mut messages, is_cut } = Conversation::new(&sent, format, knows_developer)?;
        let last = if chat.continue_final_message {
            Some(tag_last(&mut messages, template.source())?)
        } else {
            None
        };
        let others: Vec<_> =
            self.special_tokens.iter().chain(&self.defaults).chain(&chat.variables).cloned().collect();
        let rendered = template.render(Variables {
            messages: &messages,
            tools: chat.tools.as_ref(),
            documents: chat.documents.as_ref(),
            add_generation_prompt: chat.add_generation_prompt,
            others: &others,
            now,
        })?;
        let rendered = match last {
            Some(last) => without_tag(&rendered, &last)?,
            None => rendered,
        };
        let known = if is_cut {
            let missing =
                || PromptError::unsupported("the template shows no text where an unknown part stands");
            rendered.split_once(CUT).map(|(known, _)| known).ok_or_else(missing)?
        } else {
            &rendered
        };
        Ok(Rendered::Text { text: Arc::from(known), special_tokens: chat.special_tokens, is_whole: !is_cut })
    }

    /// The template for a conversation; none: the one that the request brings.
    fn template(&self, chat: &ChatRequest) -> Result<Option<&Template>, PromptError> {
        let named = |name: &str| self.templates.iter().find(|(own, _)| **own == *name).map(|(_, own)| own);
        let Some(wanted) = &chat.template else {
            let for_tools = chat.tools.as_ref().and_then(|_| named("tool_use"));
            let template = for_tools.or_else(|| named("default"));
            return template
                .map(Some)
                .ok_or_else(|| PromptError::unsupported("the model has no chat template"));
        };
        if !self.options.trust_request_template {
            return Err(PromptError::unsupported("a request's own `chat_template` is not used"));
        }
        Ok(named(wanted))
    }
}

/// Whether a template takes a system message that is not the first: vLLM tries just this conversation.
fn takes_late_system(template: &Template, now: i64) -> bool {
    let message = |role| Json::object([("role", Json::text(role)), ("content", Json::text("t"))]);
    let messages = [message("system"), message("user"), message("system"), message("user")];
    let variables = Variables {
        messages: &messages,
        tools: None,
        documents: None,
        add_generation_prompt: false,
        others: &[],
        now,
    };
    template.render(variables).is_ok()
}

/// Marks the end of the last message's content, as transformers does. The content without the mark.
fn tag_last(messages: &mut [Json], template: &str) -> Result<String, PromptError> {
    let refused = |message: &str| PromptError::malformed(format!("`continue_final_message`: {message}"));
    let last = messages.last_mut().ok_or_else(|| refused("there is no message"))?;
    if !template.contains("content") {
        return Err(refused("the template shows no content"));
    }
    match last.get("content").cloned() {
        Some(Json::Text(text)) => {
            last.set("content", Json::text(&format!("{text}{CONTINUE_TAG}")));
            Ok(text.to_string())
        }
        Some(Json::List(mut parts)) => {
            let part = parts.iter_mut().rev().find(|part| part.get_str("text").is_some());
            let part = part.ok_or_else(|| refused("the last message has no text"))?;
            let text = part.get_str("text").unwrap_or_default().to_owned();
            part.set("text", Json::text(&format!("{text}{CONTINUE_TAG}")));
            last.set("content", Json::List(parts));
            Ok(text)
        }
        _ => Err(refused("the last message has no content")),
    }
}

/// The text up to the mark. Where the template has trimmed the mark's blank, it would have trimmed the content's, too.
fn without_tag(rendered: &str, last: &str) -> Result<String, PromptError> {
    let tag = CONTINUE_TAG.trim_end();
    let end = rendered.rfind(tag).filter(|_| rendered.contains(last.trim()));
    let Some((text, rest)) = end.and_then(|end| rendered.split_at_checked(end)) else {
        let message = "`continue_final_message`: the template does not show the last message as it is";
        return Err(PromptError::malformed(message));
    };
    let text = if rest.starts_with(CONTINUE_TAG) { text } else { text.trim_end() };
    Ok(text.to_owned())
}

fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    std::fs::read(path).map_err(|source| ModelError::Read { path: path.display().to_string(), source })
}

fn invalid(path: &Path, message: String) -> ModelError {
    ModelError::Invalid { path: path.display().to_string(), message }
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, ModelError> {
    serde_json::from_slice(bytes).map_err(|error| invalid(path, error.to_string()))
}

fn compiled(path: &Path, source: &str) -> Result<Template, ModelError> {
    Template::new(source).map_err(|error: TemplateError| invalid(path, error.to_string()))
}

/// One template, or several by name.
fn templates(path: &Path, value: &Json) -> Result<Vec<(Arc<str>, Template)>, ModelError> {
    if let Some(source) = value.as_str() {
        return Ok(vec![(Arc::from("default"), compiled(path, source)?)]);
    }
    let entries = value.as_list().unwrap_or_default().iter();
    let named = entries.filter_map(|entry| Some((entry.get_str("name")?, entry.get_str("template")?)));
    named.map(|(name, source)| Ok((Arc::from(name), compiled(path, source)?))).collect()
}
