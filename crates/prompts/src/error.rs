//! What can go wrong.

use crate::template::TemplateError;
use crate::tokens::TokenizerError;

/// Why a request has no tokens here.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// No prompt is known to stand in the body of such a path.
    #[error("`{0}` is no path that has a prompt")]
    Path(String),
    /// The body is not what the path's API takes.
    #[error("{0}")]
    Malformed(String),
    /// The prompt depends on something that is not in the body, or on something that is not known here.
    #[error("{0}")]
    Unsupported(String),
    /// The template refuses the conversation, or there is none.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The tokenizer refuses the text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Nobody wants them any more.
    #[error("nobody waits any more")]
    Abandoned,
}

/// Why a model's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what its name says.
    #[error("{path}: {message}")]
    Invalid {
        /// The file.
        path: String,
        /// Why.
        message: String,
    },
}

// === impl PromptError ===

impl PromptError {
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::Malformed(message.into())
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::Unsupported(message.into())
    }

    /// Its kind, as a metric's label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Path(_) => "path",
            Self::Malformed(_) => "malformed",
            Self::Unsupported(_) => "unsupported",
            Self::Template(_) => "template",
            Self::Tokenizer(_) => "tokenizer",
            Self::Abandoned => "abandoned",
        }
    }
}
