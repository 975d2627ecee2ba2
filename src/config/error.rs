//! What is wrong with a configuration, in words for the person who wrote it.

use std::fmt;

/// One wrong field: where it is, what is wrong with it, and what to write.
///
/// Displays as `pools[0].name: must be ..., not "A b"; write ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    path: String,
    problem: String,
    advice: String,
}

/// How an error that belongs to no single field calls its subject.
const WHOLE: &str = "the configuration";

// === impl ConfigError ===

impl ConfigError {
    pub(super) fn at(path: &str, problem: impl Into<String>, advice: impl Into<String>) -> Self {
        let path = if path.is_empty() { WHOLE } else { path };
        Self { path: path.to_owned(), problem: problem.into(), advice: advice.into() }
    }

    /// An error about the configuration as a whole.
    pub(super) fn whole(problem: &str, advice: &str) -> Self {
        Self::at("", problem, advice)
    }

    /// The path of the wrong field, as `pools[0].name`; `the configuration` where no single field is wrong.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; write {}", self.path, self.problem, self.advice)
    }
}

impl std::error::Error for ConfigError {}
