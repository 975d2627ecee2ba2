//! Token counts, and the collection of a whole answer.

use serde::Serialize;

use super::error::ApiError;
use crate::engine::{Ticket, Update};

/// OpenAI's `usage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
    completion_tokens: usize,
    prompt_tokens_details: PromptTokensDetails,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct PromptTokensDetails {
    /// Prompt tokens that were in the cache.
    cached_tokens: usize,
}

/// The output of one prompt.
#[derive(Clone, Debug, Default)]
pub(super) struct Completion {
    pub(super) tokens: Vec<u32>,
    pub(super) cached_tokens: usize,
}

// === impl Usage ===

impl Usage {
    /// The usage of prompts with `prompt_tokens` tokens in all, before any output.
    pub(super) fn of_prompts(prompt_tokens: usize) -> Self {
        Self { prompt_tokens, total_tokens: prompt_tokens, ..Self::default() }
    }

    /// Counts an update. A prompt's cached tokens count when it is finished: once.
    pub(super) fn add(&mut self, update: &Update) {
        self.completion_tokens += update.tokens.len();
        self.total_tokens += update.tokens.len();
        if update.finished {
            self.prompt_tokens_details.cached_tokens += update.cached_tokens;
        }
    }
}

/// Waits for the answers to all `choices` prompts of a ticket.
pub(super) async fn collect(
    mut ticket: Ticket,
    choices: usize,
    mut usage: Usage,
) -> Result<(Vec<Completion>, Usage), ApiError> {
    let mut completions = vec![Completion::default(); choices];
    let mut open = choices;
    while open > 0 {
        let update = ticket.next().await.ok_or_else(ApiError::shutting_down)?;
        usage.add(&update);
        open -= usize::from(update.finished);
        if let Some(completion) = completions.get_mut(update.choice) {
            completion.cached_tokens = update.cached_tokens;
            completion.tokens.extend(update.tokens);
        }
    }
    Ok((completions, usage))
}
