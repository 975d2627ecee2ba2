//! The most that any routing could reach: one engine with a memory without end, the same requests in the same order.

use std::collections::HashSet;

use warmroute_routing::hash::{Namespace, SequenceHash, sequence_hashes};

use super::drive::Outcome;
use super::figures::share;

/// The share of the prompts' tokens that such an engine would have found in its cache.
pub(crate) fn cached_share(outcomes: &[Outcome], block_size: u32) -> f64 {
    let mut engine = EndlessEngine::new(block_size);
    let (mut cached, mut prompt) = (0, 0);
    for outcome in outcomes.iter().filter(|outcome| outcome.succeeded()) {
        cached += engine.serve(&outcome.prompt, &outcome.answer_tokens());
        prompt += outcome.prompt.len() as u64;
    }
    share(cached, prompt)
}

struct EndlessEngine {
    block_size: u32,
    blocks: HashSet<SequenceHash>,
}

// === impl EndlessEngine ===

impl EndlessEngine {
    fn new(block_size: u32) -> Self {
        Self { block_size, blocks: HashSet::new() }
    }

    /// Answers how many tokens of `prompt` are cached, then keeps the blocks of prompt and answer.
    fn serve(&mut self, prompt: &[u32], answer: &[u32]) -> u64 {
        // An engine computes at least the last token, to have something to go on from.
        let reusable = prompt.get(..prompt.len().saturating_sub(1)).unwrap_or_default();
        let hashes = self.hashes(reusable);
        let cached = hashes.iter().take_while(|hash| self.blocks.contains(hash)).count();
        // The answer's last token is never put through the model.
        let computed: Vec<u32> = prompt.iter().chain(answer).copied().collect();
        let computed = computed.get(..computed.len().saturating_sub(1)).unwrap_or_default();
        let kept = self.hashes(if answer.is_empty() { prompt } else { computed });
        self.blocks.extend(kept);
        cached as u64 * u64::from(self.block_size)
    }

    fn hashes(&self, tokens: &[u32]) -> Vec<SequenceHash> {
        sequence_hashes(tokens, self.block_size, Namespace::default())
    }
}

#[cfg(test)]
mod tests {
    use super::EndlessEngine;

    #[test]
    fn the_last_token_is_never_cached() {
        let mut engine = EndlessEngine::new(4);
        assert_eq!(engine.serve(&[1, 2, 3, 4, 5, 6, 7, 8], &[]), 0);
        assert_eq!(engine.serve(&[1, 2, 3, 4, 5, 6, 7, 8], &[]), 4);
        assert_eq!(engine.serve(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &[]), 8);
    }

    #[test]
    fn answers_are_kept_but_for_their_last_token() {
        let mut engine = EndlessEngine::new(4);
        engine.serve(&[1, 2, 3, 4], &[5, 6, 7, 8]);
        assert_eq!(engine.serve(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &[10]), 4);
        assert_eq!(engine.serve(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &[10]), 8);
    }
}
