//! What an engine says of its cache, in the index's own terms: the adapters in the collector translate every wire format
//! into these.

use warmroute_routing::Tier;
use warmroute_routing::hash::LocalHash;

/// An engine's own name for a block. Only a name: two engines may call one block differently, and one engine may call
/// two blocks alike at different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineHash(pub u64);

/// A group of layers that share a KV cache layout, as hybrid models have several. 0 where an engine has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u32);

/// One change of one worker's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks were stored, each the child of the one before it in the list.
    Stored(Stored),
    /// Copies of blocks were removed.
    Removed(Removed),
    /// The whole cache was emptied, every tier and group of it.
    Cleared,
}

/// Blocks that a worker now holds one more copy of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The blocks' names, in the prompt's order.
    pub hashes: Vec<EngineHash>,
    /// The name of the block before the first; none where the first is a prompt's first block.
    pub parent: Option<EngineHash>,
    /// The tokens of all blocks: exactly `hashes.len() * block_size` of them. Empty where the engine does not say: then
    /// only blocks whose names are known already can be counted.
    pub tokens: Vec<u32>,
    /// Tokens in a block, as the engine says.
    pub block_size: u32,
    /// Names of media (images, embeddings) behind placeholder tokens, by block: empty, or one list for each block.
    pub media: Vec<Vec<u64>>,
    /// The LoRA adapter's name. Heeded where `parent` is none: other blocks inherit their parent's namespace.
    pub lora: Option<String>,
    /// The cache salt. Heeded where `parent` is none.
    pub salt: Option<String>,
    /// Where the copies are.
    pub tier: Tier,
    /// The group that holds them.
    pub group: Group,
}

/// Blocks of which a worker has dropped one copy each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The blocks' names.
    pub hashes: Vec<EngineHash>,
    /// How many copies each block has left there, where the engine says: empty, or one number for each name. It is believed
    /// over what has been counted.
    pub left: Vec<u32>,
    /// Where the copies were.
    pub tier: Tier,
    /// The group that held them.
    pub group: Group,
}

/// Blocks stored, told by the hashes of their contents: for feeders that have hashed the tokens themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLocals {
    /// The blocks' names, in the prompt's order.
    pub hashes: Vec<EngineHash>,
    /// The name of the block before the first; none where the first is a prompt's first block.
    pub parent: Option<EngineHash>,
    /// What is in each block, hashed under the namespace that `lora` and `salt` make.
    pub locals: Vec<LocalHash>,
    /// The LoRA adapter's name. Heeded where `parent` is none, for later blocks whose tokens are told.
    pub lora: Option<String>,
    /// The cache salt. Heeded where `parent` is none, as `lora` is.
    pub salt: Option<String>,
    /// Where the copies are.
    pub tier: Tier,
    /// The group that holds them.
    pub group: Group,
}
