//! Token IDs out of a JSON body that arrives in pieces.
//!
//! [`BodyScanner`] reads the members of the top-level object. It keeps the few that matter and passes over the rest
//! in constant memory, and it stops at any byte and goes on with the next piece as if there had been no cut: in the
//! middle of a number, of an escape, of a UTF-8 sequence. Token IDs go to a [`TokenSink`] piece by piece, so that they
//! are hashed while the body still arrives.
//!
//! ```text
//! {"model":"m","prompt":[5,6,7],"extra":{"deep":["x"]},"cache_salt":"t"}
//!  ~~~~~~~ ~~~ ~~~~~~~~ ~~~~~~~         ~~~~~~~~~~~~~~
//!  key     |   key      TokenList       Skipper (grammar alone, one bit a level)
//!          Text (captured)
//! ```
//!
//! | module | reads |
//! |---|---|
//! | `scanner` | the top-level object: which member is whose |
//! | `tokens` | a list of token IDs |
//! | `items` | its items of the usual form: the hot loop |
//! | `text` | a string, captured or passed over |
//! | `skip` | any value, passed over by JSON's grammar |
//! | `summary` | what is known of the body |
//!
//! # What counts as the prompt
//!
//! The value of `prompt` (vLLM and OpenAI completions), `token_ids` (vLLM's generate) or `input_ids` (SGLang): a list
//! of integers from 0 to 2^32 - 1, or a list of such lists, of which the first is read. `null` counts as absent, as
//! the engines have it. A body with two of them, or with one of them twice, is ambiguous: JSON parsers mostly take the
//! last of two equal keys, but the tokens of the first have been hashed and perhaps routed by then, and which of two
//! different keys is read depends on the engine. So this is [`PromptError::DuplicatePrompt`], and the request goes its
//! ordinary way.
//!
//! Where none of them is there, `messages`, `input` or `text` say that the prompt is text, which somebody else has to tokenize.
//!
//! Of the names (`model`, `cache_salt`, `lora_path`, `extra_key`) the last of two equal keys counts, as in the
//! engines: they are read at the end, or as known so far.
//!
//! [`PromptError::DuplicatePrompt`]: super::PromptError::DuplicatePrompt

mod items;
mod scanner;
mod skip;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod tokens;

pub use scanner::BodyScanner;
pub use summary::{Name, Progress, PromptKind};
pub use tokens::TokenSink;

/// How far a reader of one value has come with the bytes that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    /// The value is complete; these bytes come after it.
    Done(&'a [u8]),
    /// The value goes on in the next piece.
    More,
}

/// JSON's blanks. There are no others.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The bytes without the blanks before them.
fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|byte| is_blank(**byte)).count();
    bytes.get(blanks..).unwrap_or_default()
}
