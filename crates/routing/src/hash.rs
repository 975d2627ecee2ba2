//! Token blocks and their hashes.
//!
//! A prompt's token IDs are cut into blocks of the pool's block size; a last block that is not full is dropped. Each
//! block has two hashes, by NVIDIA Dynamo's recipe, so that they are interchangeable with its tools:
//!
//! ```text
//! seed     = 1337 + XXH3_64(LoRA name, seed 0) + XXH3_64(cache namespace, seed 1)      mod 2^64
//! local[i] = XXH3_64(tokens of block i as little-endian u32 [|| sorted multimodal hashes, LE u64], seed)
//! seq[0]   = local[0]
//! seq[i]   = XXH3_64(LE u64 seq[i-1] || LE u64 local[i], seed 1337)
//! ```
//!
//! An absent or empty LoRA name or namespace adds nothing. The [`LocalHash`] names what is in a block, the
//! [`SequenceHash`] the block together with everything before it: that is the key of the index.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The seed of sequence hashes, and of local hashes in the plain namespace.
const BASE_SEED: u64 = 1337;

/// Blocks up to this many tokens are hashed from the stack.
const INLINE_TOKENS: usize = 64;

/// The most tokens that a block may have. Engines have 16 to a few thousand; one that is hashed is held in memory.
pub const MAX_BLOCK_SIZE: u32 = 65_536;

/// Names what is in one block, whatever came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalHash(pub u64);

/// Names a block together with every block before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceHash(pub u64);

/// What keeps equal tokens apart: the adapter and the tenant that a prompt was computed for, as a hash seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(u64);

/// Hashes a prompt's tokens as they come, in pieces of any length, without keeping them.
///
/// ```
/// use warmroute_routing::hash::{Namespace, PromptHasher};
///
/// let mut hasher = PromptHasher::new(4, Namespace::default());
/// hasher.extend(&[1, 2, 3]);
/// hasher.extend(&[4, 5]);
/// assert_eq!(hasher.tokens(), 5);
/// assert_eq!(hasher.hashes().len(), 1); // the fifth token fills no block
/// assert_eq!(hasher.hashes()[0].0, 14643705804678351452);
/// ```
#[derive(Clone, Debug)]
pub struct PromptHasher {
    namespace: Namespace,
    /// The little-endian tokens of the block that is being filled.
    block: Vec<[u8; 4]>,
    /// How many of them are there.
    filled: usize,
    tokens: usize,
    hashes: Vec<SequenceHash>,
}

// === impl LocalHash ===

impl LocalHash {
    /// The hash of one block of text tokens.
    pub fn of_block(namespace: Namespace, tokens: &[u32]) -> Self {
        Self::of_block_with_media(namespace, tokens, &mut [])
    }

    /// The hash of one block in which media (images, audio, embeddings) stand behind placeholder tokens: `media` are
    /// the 64-bit names of what is behind them. Their order does not matter; they are sorted here.
    pub fn of_block_with_media(namespace: Namespace, tokens: &[u32], media: &mut [u64]) -> Self {
        // Filled as a whole: pushed number by number, the copy costs many times what the hash does.
        let mut bytes: SmallVec<[u8; INLINE_TOKENS * 4]> = SmallVec::from_elem(0, tokens.len() * 4);
        for (to, token) in bytes.as_chunks_mut().0.iter_mut().zip(tokens) {
            *to = token.to_le_bytes();
        }
        media.sort_unstable();
        for name in media.iter() {
            bytes.extend_from_slice(&name.to_le_bytes());
        }
        Self(xxh3_64_with_seed(&bytes, namespace.0))
    }
}

// === impl SequenceHash ===

impl SequenceHash {
    /// The hash of a prompt's first block.
    #[inline]
    pub fn root(local: LocalHash) -> Self {
        Self(local.0)
    }

    /// The hash of the block `local` that follows this one.
    #[inline]
    pub fn child(self, local: LocalHash) -> Self {
        let mut bytes = [0; 16];
        let (parent, own) = bytes.split_at_mut(8);
        parent.copy_from_slice(&self.0.to_le_bytes());
        own.copy_from_slice(&local.0.to_le_bytes());
        Self(xxh3_64_with_seed(&bytes, BASE_SEED))
    }

    /// The hash of a block that follows `parent`, or of a first block where there is none.
    pub fn after(parent: Option<Self>, local: LocalHash) -> Self {
        parent.map_or(Self::root(local), |parent| parent.child(local))
    }

    /// The sequence hashes of a chain of blocks.
    pub fn chain(locals: impl IntoIterator<Item = LocalHash>) -> Vec<Self> {
        let mut last = None;
        locals
            .into_iter()
            .map(|local| {
                let hash = Self::after(last, local);
                last = Some(hash);
                hash
            })
            .collect()
    }
}

// === impl Namespace ===

impl Namespace {
    /// The namespace of a LoRA adapter's name and a cache salt. Absent and empty mean the same.
    pub fn new(lora: Option<&str>, salt: Option<&str>) -> Self {
        let part = |name: Option<&str>, seed| match name {
            None | Some("") => 0,
            Some(name) => xxh3_64_with_seed(name.as_bytes(), seed),
        };
        Self(BASE_SEED.wrapping_add(part(lora, 0)).wrapping_add(part(salt, 1)))
    }

    /// The namespace of a seed that [`Namespace::seed`] gave.
    pub fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed that the namespace gives to the local hashes.
    pub fn seed(self) -> u64 {
        self.0
    }
}

impl Default for Namespace {
    /// The base model's, without a salt.
    fn default() -> Self {
        Self(BASE_SEED)
    }
}

// === impl PromptHasher ===

impl PromptHasher {
    /// A hasher for blocks of `block_size` tokens. A block size of 0 is taken as 1: there is no such block.
    pub fn new(block_size: u32, namespace: Namespace) -> Self {
        let block = vec![[0; 4]; block_size.max(1) as usize];
        Self { namespace, block, filled: 0, tokens: 0, hashes: Vec::new() }
    }

    /// Takes the prompt's next tokens.
    pub fn extend(&mut self, mut tokens: &[u32]) {
        self.tokens += tokens.len();
        self.hashes.reserve(tokens.len() / self.block.len());
        while !tokens.is_empty() {
            let free = self.block.get_mut(self.filled..).unwrap_or_default();
            let (next, rest) = tokens.split_at_checked(free.len()).unwrap_or((tokens, &[]));
            for (place, token) in free.iter_mut().zip(next) {
                *place = token.to_le_bytes();
            }
            self.filled += next.len();
            tokens = rest;
            if self.filled == self.block.len() {
                self.close_block();
            }
        }
    }

    fn close_block(&mut self) {
        let local = LocalHash(xxh3_64_with_seed(self.block.as_flattened(), self.namespace.0));
        self.hashes.push(SequenceHash::after(self.hashes.last().copied(), local));
        self.filled = 0;
    }

    /// The tokens taken so far, those of a block that is not full included.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The hashes of the full blocks so far, first block first.
    pub fn hashes(&self) -> &[SequenceHash] {
        &self.hashes
    }
}

/// The sequence hashes of a whole prompt's full blocks.
pub fn sequence_hashes(tokens: &[u32], block_size: u32, namespace: Namespace) -> Vec<SequenceHash> {
    let mut hasher = PromptHasher::new(block_size, namespace);
    hasher.extend(tokens);
    hasher.hashes
}

/// The local hashes of a prompt under EAGLE speculative decoding, whose blocks hash one token more than they hold:
/// block `i` covers the tokens `i * block_size ..= (i + 1) * block_size`, so that the last block needs its successor's
/// first token.
pub fn eagle_local_hashes(tokens: &[u32], block_size: u32, namespace: Namespace) -> Vec<LocalHash> {
    let size = block_size.max(1) as usize;
    tokens
        .windows(size.saturating_add(1))
        .step_by(size)
        .map(|window| LocalHash::of_block(namespace, window))
        .collect()
}
