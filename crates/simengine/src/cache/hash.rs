//! The engine's own block hashes.
//!
//! A block's hash chains over its parent's hash, its token ids and its extra keys (adapter, salt), so that one hash
//! stands for the whole prefix up to and with that block. The root of every chain is a seed that each process draws at
//! random, as vLLM does without `PYTHONHASHSEED`: a consumer that relies on equal hashes across engines fails here as
//! it would there.
//!
//! ```text
//! root(seed) -> H(root, tokens 0..B, keys) -> H(block 0, tokens B..2B, keys) -> ...
//! H = XXH3-128(message, seed 1) ++ XXH3-128(message, seed 2), big-endian: 32 bytes
//! ```

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// A block's 32-byte hash. It identifies the whole prefix that ends with the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockHash([u8; 32]);

/// Computes block hashes of one process.
#[derive(Clone, Debug)]
pub struct ChainHasher {
    root: BlockHash,
}

// === impl BlockHash ===

impl BlockHash {
    /// All 32 bytes, as engines send them with byte hashes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The low 64 bits: the last eight bytes, big-endian, as engines send them with integer hashes.
    pub fn low64(&self) -> u64 {
        self.0.iter().rev().take(8).rev().fold(0, |low, byte| (low << 8) | u64::from(*byte))
    }

    fn of(message: &[u8]) -> Self {
        let high = xxh3_128_with_seed(message, 1).to_be_bytes();
        let low = xxh3_128_with_seed(message, 2).to_be_bytes();
        let mut bytes = [0; 32];
        for (to, from) in bytes.iter_mut().zip(high.iter().chain(&low)) {
            *to = *from;
        }
        Self(bytes)
    }
}

// === impl ChainHasher ===

impl ChainHasher {
    /// A hasher whose chains start at `seed`. Equal seeds give equal hashes.
    pub fn new(seed: u64) -> Self {
        Self { root: BlockHash::of(&seed.to_be_bytes()) }
    }

    /// The hash of a block of `tokens` with `extra_keys` that follows `parent` (`None`: the first block).
    pub fn block(&self, parent: Option<&BlockHash>, tokens: &[u32], extra_keys: &[Arc<str>]) -> BlockHash {
        let parent = parent.unwrap_or(&self.root);
        let mut message = Vec::with_capacity(32 + tokens.len() * 4 + 64);
        message.extend_from_slice(parent.as_bytes());
        for token in tokens {
            message.extend_from_slice(&token.to_le_bytes());
        }
        for key in extra_keys {
            // The length keeps ["ab"] and ["a", "b"] apart.
            message.extend_from_slice(&(key.len() as u64).to_le_bytes());
            message.extend_from_slice(key.as_bytes());
        }
        BlockHash::of(&message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low64_is_the_last_eight_bytes_big_endian() {
        let hash = ChainHasher::new(7).block(None, &[1, 2], &[]);
        let tail: [u8; 8] = hash.as_bytes()[24..].try_into().unwrap();
        assert_eq!(hash.low64(), u64::from_be_bytes(tail));
    }

    #[test]
    fn depends_on_seed_parent_tokens_and_keys() {
        let hasher = ChainHasher::new(7);
        let base = hasher.block(None, &[1, 2], &[]);
        assert_eq!(base, ChainHasher::new(7).block(None, &[1, 2], &[]));
        assert_ne!(base, ChainHasher::new(8).block(None, &[1, 2], &[]));
        assert_ne!(base, hasher.block(Some(&base), &[1, 2], &[]));
        assert_ne!(base, hasher.block(None, &[1, 3], &[]));
        assert_ne!(base, hasher.block(None, &[1, 2], &["salt".into()]));
        let joined = hasher.block(None, &[1], &["ab".into()]);
        assert_ne!(joined, hasher.block(None, &[1], &["a".into(), "b".into()]));
    }
}
