//! Reading token IDs and prompts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use warmroute_routing::choose;
use warmroute_routing::hash::{LocalHash, SequenceHash, sequence_hashes};

use crate::bindings::exports::warmroute::routing::types::{Prompt, Tokens};
use crate::convert;

/// A prompt that was read.
pub(crate) struct Read {
    /// The sequence hashes of its full blocks.
    pub(crate) hashes: Vec<SequenceHash>,
    pub(crate) prompt: choose::Prompt,
}

/// Token IDs as a list.
///
/// # Errors
///
/// What is wrong with them, for people.
pub(crate) fn ids(tokens: Tokens) -> Result<Vec<u32>, String> {
    let base64 = match tokens {
        Tokens::Ids(ids) => return Ok(ids),
        Tokens::Base64(base64) => base64,
    };
    let bytes = STANDARD.decode(base64).map_err(|error| format!("tokens are no base64: {error}"))?;
    let (ids, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(format!("tokens have {} bytes, which is no multiple of 4", bytes.len()));
    }
    Ok(ids.iter().map(|id| u32::from_le_bytes(*id)).collect())
}

/// A prompt's hashes and size. `block_size` is at least 1.
///
/// # Errors
///
/// What is wrong with its tokens, for people.
pub(crate) fn prompt(prompt: Prompt, block_size: u32) -> Result<Read, String> {
    let (hashes, tokens) = match prompt {
        Prompt::Tokens((tokens, namespace)) => {
            let ids = ids(tokens)?;
            (sequence_hashes(&ids, block_size, convert::namespace(&namespace)), Some(ids.len()))
        }
        Prompt::Blocks(locals) => (SequenceHash::chain(locals.into_iter().map(LocalHash)), None),
        Prompt::Sequences(hashes) => (hashes.into_iter().map(SequenceHash).collect(), None),
    };
    let blocks = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
    let tokens = tokens.map_or(u64::from(blocks) * u64::from(block_size), |tokens| tokens as u64);
    Ok(Read { hashes, prompt: choose::Prompt { blocks, tokens, block_size } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_little_endian_u32() {
        assert_eq!(ids(Tokens::Base64("AQAAAP////8=".to_owned())), Ok(vec![1, u32::MAX]));
        assert_eq!(ids(Tokens::Base64(String::new())), Ok(vec![]));
    }

    #[test]
    fn what_is_no_base64_of_whole_tokens_is_refused() {
        for tokens in ["AQAA", "AQAAAP////8", "AQ AAAA", "\u{e9}"] {
            let error = ids(Tokens::Base64(tokens.to_owned())).unwrap_err();
            assert!(error.starts_with("tokens "), "{tokens}: {error}");
        }
    }

    #[test]
    fn tokens_and_both_kinds_of_hashes_are_one_prompt() {
        use crate::bindings::exports::warmroute::routing::types::Namespace;
        use warmroute_routing::hash::Namespace as Plain;

        let tokens: Vec<u32> = (0..35).collect();
        let plain = Namespace { lora: None, salt: None };
        let of_tokens =
            prompt(Prompt::Tokens((Tokens::Ids(tokens.clone()), plain)), 16).unwrap_or_else(|_| panic!());
        let locals = tokens.chunks_exact(16).map(|block| LocalHash::of_block(Plain::default(), block).0);
        let of_blocks = prompt(Prompt::Blocks(locals.collect()), 16).unwrap_or_else(|_| panic!());
        let sequences = of_tokens.hashes.iter().map(|hash| hash.0).collect();
        let of_sequences = prompt(Prompt::Sequences(sequences), 16).unwrap_or_else(|_| panic!());
        assert_eq!(of_tokens.hashes, of_blocks.hashes);
        assert_eq!(of_tokens.hashes, of_sequences.hashes);
        assert_eq!((of_tokens.prompt.blocks, of_tokens.prompt.tokens), (2, 35));
        assert_eq!((of_blocks.prompt.blocks, of_blocks.prompt.tokens), (2, 32));
    }
}
