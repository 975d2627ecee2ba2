//! Why a request has no token IDs to route by.

use std::fmt;

/// Why a request has no token IDs to route by. Each of these sends it to Envoy's own choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PromptError {
    /// The body is empty, or does not begin as a JSON object: an upload, a byte order mark, UTF-16.
    NotJson,
    /// The body begins as a JSON object, but breaks JSON's rules, ends early, nests too deep, or has something else
    /// than integers among its token IDs.
    MalformedBody,
    /// The body has more than one prompt: the same key twice, or two keys that both carry one. Which of them an engine
    /// would read is not ours to guess.
    DuplicatePrompt,
    /// The prompt is text.
    TextPrompt,
    /// The body has no prompt, or has one of a shape that carries no token IDs.
    NoTokens,
    /// The body has prompt embeddings: equal token IDs do not make equal prefixes then.
    Embeds,
    /// A number among the token IDs is no integer from 0 to 2^32 - 1.
    TokenOutOfRange,
    /// A prompt header is not in its format.
    BadHeader,
}

// === impl PromptError ===

impl PromptError {
    /// Every reason, for those who set up a counter for each.
    pub const ALL: [Self; 8] = [
        Self::NotJson,
        Self::MalformedBody,
        Self::DuplicatePrompt,
        Self::TextPrompt,
        Self::NoTokens,
        Self::Embeds,
        Self::TokenOutOfRange,
        Self::BadHeader,
    ];

    /// The reason's label in metrics and in the decision header. Stable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::MalformedBody => "malformed_body",
            Self::DuplicatePrompt => "duplicate_prompt",
            Self::TextPrompt => "text_prompt",
            Self::NoTokens => "no_tokens",
            Self::Embeds => "embeds",
            Self::TokenOutOfRange => "token_out_of_range",
            Self::BadHeader => "bad_header",
        }
    }
}

impl fmt::Display for PromptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotJson => "the body is no JSON object",
            Self::MalformedBody => "the body breaks JSON's rules or the prompt's",
            Self::DuplicatePrompt => "the body has more than one prompt",
            Self::TextPrompt => "the prompt is text",
            Self::NoTokens => "the body has no token IDs",
            Self::Embeds => "the prompt has embeddings",
            Self::TokenOutOfRange => "a token ID is no integer from 0 to 4294967295",
            Self::BadHeader => "a prompt header is not in its format",
        })
    }
}

impl std::error::Error for PromptError {}

#[cfg(test)]
mod tests {
    use super::PromptError;

    #[test]
    fn labels_are_distinct_snake_case() {
        for (position, reason) in PromptError::ALL.iter().enumerate() {
            assert!(reason.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(
                PromptError::ALL.iter().skip(position + 1).all(|other| other.as_str() != reason.as_str())
            );
        }
    }
}
