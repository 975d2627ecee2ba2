//! What the engine "generates", and the tokeniser that goes with it.
//!
//! Text is tokenised by bytes: a byte is a token id. Generated tokens are letters and blanks, so their text, sent back
//! as part of a longer prompt, gives the same token ids again: a conversation in text keeps its prefix.
//!
//! The output depends on the prompt and the adapter alone, so every engine answers alike.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::cache::Namespace;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz aeio ";

/// The endless output that belongs to one prompt.
#[derive(Clone, Debug)]
pub(crate) struct OutputSource {
    prompt_hash: u64,
}

/// The token ids of a text.
pub(crate) fn tokenise(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// The text of generated tokens.
pub(crate) fn text_of(tokens: &[u32]) -> String {
    let chars =
        tokens.iter().map(|token| u8::try_from(*token).map_or(char::REPLACEMENT_CHARACTER, char::from));
    chars.collect()
}

// === impl OutputSource ===

impl OutputSource {
    pub(crate) fn new(prompt: &[u32], namespace: &Namespace) -> Self {
        let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
        let adapter = namespace.lora.as_ref().map_or(0, |lora| xxh3_64_with_seed(lora.name.as_bytes(), 1));
        Self { prompt_hash: xxh3_64_with_seed(&bytes, adapter) }
    }

    /// The output token at `position`, counted from 0.
    pub(crate) fn token(&self, position: usize) -> u32 {
        let random = xxh3_64_with_seed(&position.to_le_bytes(), self.prompt_hash);
        let letter =
            usize::try_from(random % ALPHABET.len() as u64).ok().and_then(|index| ALPHABET.get(index));
        u32::from(letter.copied().unwrap_or(b' '))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_depends_on_prompt_and_position_alone() {
        let output = |prompt: &[u32]| {
            let source = OutputSource::new(prompt, &Namespace::default());
            (0..16).map(|position| source.token(position)).collect::<Vec<_>>()
        };
        assert_eq!(output(&[1, 2]), output(&[1, 2]));
        assert_ne!(output(&[1, 2]), output(&[1, 3]));
    }

    #[test]
    fn generated_text_gives_its_tokens_again() {
        let source = OutputSource::new(&[1, 2], &Namespace::default());
        let tokens: Vec<_> = (0..64).map(|position| source.token(position)).collect();
        assert_eq!(tokenise(&text_of(&tokens)), tokens);
    }
}
