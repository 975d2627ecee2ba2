//! What is known of a body.

use crate::prompt::PromptError;

/// How far the scanner is after a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The object goes on.
    Reading,
    /// The object is closed. Only blanks may follow.
    Complete,
    /// The body cannot be read. Further pieces change nothing.
    Failed(PromptError),
}

/// What the body has as its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptKind {
    /// Token IDs. They have gone to the sink.
    Tokens {
        /// How many.
        count: usize,
    },
    /// Text: a text in the prompt's place, a list that begins with one, or messages and the like and no prompt beside them.
    Text,
    /// Embeddings, alone or beside token IDs. Equal token IDs do not make equal prefixes then.
    Embeds,
    /// No prompt, or one whose shape carries no token IDs (an object, a list of objects).
    Absent,
}

/// A string that belongs to the prompt's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Name {
    /// The body does not have it, or has null.
    #[default]
    Absent,
    /// The string, with its escapes resolved: at most 1,024 bytes.
    Known(String),
    /// The body has something else in its place: no string (SGLang takes lists here), a longer one, or one with half
    /// a surrogate pair.
    Unknown,
}

// === impl PromptKind ===

impl PromptKind {
    /// Why such a prompt cannot be routed by. None for token IDs.
    pub const fn reason(self) -> Option<PromptError> {
        match self {
            Self::Tokens { .. } => None,
            Self::Text => Some(PromptError::TextPrompt),
            Self::Embeds => Some(PromptError::Embeds),
            Self::Absent => Some(PromptError::NoTokens),
        }
    }
}

// === impl Name ===

impl Name {
    /// The string, where it is known.
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(name) => Some(name),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// Whether the body has it at all.
    pub const fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }
}
