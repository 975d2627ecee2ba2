//! One request on its way through the scheduler.

use crate::cache::{Namespace, Sequence};
use crate::output::OutputSource;

use super::RequestId;

/// A prompt and what to do with it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Names the request in this engine; unique.
    pub id: RequestId,
    /// The prompt's token ids; at least one.
    pub prompt: Vec<u32>,
    /// Adapter and salt.
    pub namespace: Namespace,
    /// Output tokens, exactly: the engine never stops earlier. At least one.
    pub max_tokens: usize,
}

/// A request with its progress. It survives a preemption.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: RequestId,
    pub(super) sequence: Sequence,
    pub(super) prompt_tokens: usize,
    pub(super) max_tokens: usize,
    pub(super) output: OutputSource,
    /// The output tokens so far. The last one is in no block: nobody computes it until the next one is wanted.
    pub(super) generated: Vec<u32>,
    /// What the cache gave at the first admission, in tokens.
    pub(super) cached_tokens: Option<usize>,
}

// === impl Request ===

impl Request {
    /// Tokens that need a place in a block at the end: the last output token does not.
    pub fn tokens_at_end(&self) -> usize {
        self.prompt.len().saturating_add(self.max_tokens.saturating_sub(1))
    }
}

// === impl Job ===

impl Job {
    pub(super) fn new(request: Request) -> Self {
        Self {
            id: request.id,
            output: OutputSource::new(&request.prompt, &request.namespace),
            prompt_tokens: request.prompt.len(),
            max_tokens: request.max_tokens,
            sequence: Sequence::new(request.namespace, request.prompt),
            generated: Vec::new(),
            cached_tokens: None,
        }
    }

    /// Generates the next token.
    pub(super) fn generate(&mut self) -> u32 {
        let token = self.output.token(self.generated.len());
        self.generated.push(token);
        token
    }

    pub(super) fn is_finished(&self) -> bool {
        self.generated.len() >= self.max_tokens
    }

    /// Puts all output so far into the (released) sequence, so that it is computed again as part of the prompt.
    pub(super) fn fold_output(&mut self) {
        let folded = self.sequence.tokens().len().saturating_sub(self.prompt_tokens);
        let rest: Vec<u32> = self.generated.iter().skip(folded).copied().collect();
        self.sequence.extend(&rest);
    }
}
