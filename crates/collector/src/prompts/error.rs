//! Why there are no blocks.

use warmroute_prompts::PromptError;

use super::engine::EngineError;

/// Why a request gets no blocks.
#[derive(Debug, thiserror::Error)]
pub enum PromptsError {
    /// No such pool, or one without `prompts`.
    #[error("no pool named `{0}` has `prompts`")]
    NoPrompts(String),
    /// The model's files are still being read.
    #[error("the model's files are being read")]
    NotReady,
    /// The model's files cannot be used.
    #[error("the model's files cannot be used: {0}")]
    Unusable(String),
    /// Too many wait already.
    #[error("too many prompts wait already")]
    Busy,
    /// The request.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The engine that was asked.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The collector stops.
    #[error("the collector stops")]
    Stopping,
}

// === impl PromptsError ===

impl PromptsError {
    /// Its kind, as a metric's label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoPrompts(_) => "no_prompts",
            Self::NotReady => "not_ready",
            Self::Unusable(_) => "unusable",
            Self::Busy => "busy",
            Self::Prompt(error) => error.kind(),
            Self::Engine(_) => "engine",
            Self::Stopping => "stopping",
        }
    }
}
