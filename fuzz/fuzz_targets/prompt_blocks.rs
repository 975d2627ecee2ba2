//! Prompt blocks from outside, as the filter takes them from the collector: whatever decodes is consistent, and the same
//! bytes come of it again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmroute_routing::prompt_blocks::PromptBlocks;

fuzz_target!(|bytes: &[u8]| {
    let Ok(blocks) = PromptBlocks::decode(bytes) else { return };
    assert_eq!(blocks.hashes.len(), (blocks.token_count / blocks.block_size) as usize);
    if let Some(tokens) = &blocks.tokens {
        assert_eq!(tokens.len(), blocks.token_count as usize);
    }
    assert_eq!(blocks.encode(), bytes);
});
