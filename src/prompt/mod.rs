//! Readers of prompts: token IDs or block hashes out of request headers, token IDs out of a JSON body.
//!
//! They know no proxy. What a client sends is hostile until read: no input panics, and memory is bounded by the
//! header's own size, or, for a body of any size, by a few small buffers. An input that cannot be read gives a
//! [`PromptError`], which sends the request to Envoy's own choice: it is never answered with an error.

mod error;
pub mod header;
pub mod json;

pub use error::PromptError;
