//! The answer's JSON, whole or as a chunk of a stream.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::super::usage::{Completion, Usage};
use crate::output::text_of;

/// What every part of one answer repeats.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    id: String,
    model: String,
    /// Seconds since 1970.
    created: u64,
}

#[derive(Serialize)]
pub(super) struct CompletionBody<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<Choice>,
    /// Absent in chunks that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
pub(super) struct Choice {
    index: usize,
    text: String,
    /// Always null.
    logprobs: (),
    finish_reason: Option<&'static str>,
    /// Always null.
    stop_reason: (),
    token_ids: Option<Vec<u32>>,
    prompt_token_ids: Option<Vec<u32>>,
}

// === impl Answer ===

impl Answer {
    pub(super) fn new(model: &str, created: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id: format!("cmpl-{number:016x}"), model: model.to_owned(), created }
    }

    pub(super) fn body(&self, choices: Vec<Choice>, usage: Option<Usage>) -> CompletionBody<'_> {
        CompletionBody {
            id: &self.id,
            object: "text_completion",
            created: self.created,
            model: &self.model,
            choices,
            usage,
        }
    }
}

// === impl Choice ===

impl Choice {
    /// New tokens of prompt `index`. With `with_ids` their ids too.
    pub(super) fn new(index: usize, tokens: Vec<u32>, finished: bool, with_ids: bool) -> Self {
        Self {
            index,
            text: text_of(&tokens),
            logprobs: (),
            // The engine always generates as much as it may.
            finish_reason: finished.then_some("length"),
            stop_reason: (),
            token_ids: with_ids.then_some(tokens),
            prompt_token_ids: None,
        }
    }
}

/// The whole answer. With `prompts`, it repeats their token ids.
pub(super) fn whole_answer(
    answer: &Answer,
    completions: Vec<Completion>,
    prompts: Option<Vec<Vec<u32>>>,
    usage: Usage,
) -> CompletionBody<'_> {
    let with_ids = prompts.is_some();
    let mut prompts = prompts.unwrap_or_default().into_iter();
    let choices = completions.into_iter().enumerate().map(|(index, completion)| {
        let choice = Choice::new(index, completion.tokens, true, with_ids);
        Choice { prompt_token_ids: prompts.next(), ..choice }
    });
    answer.body(choices.collect(), Some(usage))
}
