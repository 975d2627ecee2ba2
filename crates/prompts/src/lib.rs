//! Prompts: from a request's path and body to the token IDs that the engine will compute.
//!
//! ```text
//! path, body --request--> chat --conversation--> messages --template--> text --tokens--> token IDs
//!                  |_____ text ______________________________________________^
//!                  |_____ token IDs, as they are
//! ```
//!
//! A wrong token at one place loses every block after it, silently. So each step follows what the engine does, fact by fact:
//! [`Request`] knows the APIs, `conversation` what vLLM makes of a message, [`template`] Jinja2 as
//! transformers sets it up, and [`tokens`] is Hugging Face's tokenizer with a memory. There is no HTTP and no clock here;
//! files are read once, by [`Model::load`].
#![forbid(unsafe_code)]

mod conversation;
mod error;
mod json;
mod model;
mod request;
pub mod template;
pub mod tokens;

pub use self::error::{ModelError, PromptError};
pub use self::json::Json;
pub use self::model::{Model, Options, Prompt, Rendered};
pub use self::request::{ChatRequest, Request, Source};
