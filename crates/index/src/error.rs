//! What callers and engines can get wrong.

use crate::worker::WorkerId;

/// Why a worker could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// Every slot of this generation has been used. A new generation renumbers them.
    #[error("no worker slot is left in this generation")]
    SlotsExhausted,
    /// A worker with the same address and rank is there already.
    #[error("worker with this address and rank is already there")]
    WorkerExists(WorkerId),
}

/// Why an event could not be applied. It has changed nothing then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The worker was never added, or has been removed.
    #[error("worker is unknown")]
    UnknownWorker,
    /// The engine's blocks are of another size than the index's.
    #[error("event has blocks of {actual} tokens, the index blocks of {expected}")]
    BlockSize {
        /// The index's.
        expected: u32,
        /// The event's.
        actual: u32,
    },
    /// The tokens do not fill exactly the blocks that are named.
    #[error("event has {tokens} tokens for {hashes} blocks of {block_size}")]
    Misaligned {
        /// How many tokens there are.
        tokens: usize,
        /// How many blocks are named.
        hashes: usize,
        /// Tokens in a block.
        block_size: u32,
    },
    /// There are media for some number of blocks that is neither none nor all.
    #[error("event has media for {media} blocks and {hashes} blocks")]
    Media {
        /// How many blocks have a list of media.
        media: usize,
        /// How many blocks are named.
        hashes: usize,
    },
    /// There are numbers of copies left for some number of blocks that is neither none nor all.
    #[error("event has numbers of copies left for {left} blocks and {hashes} blocks")]
    Left {
        /// How many numbers there are.
        left: usize,
        /// How many blocks are named.
        hashes: usize,
    },
    /// There are not as many local hashes as names.
    #[error("event has {locals} local hashes for {hashes} blocks")]
    Locals {
        /// How many local hashes there are.
        locals: usize,
        /// How many blocks are named.
        hashes: usize,
    },
}

/// Bytes that are not what [`crate::Index::save_worker`] writes. Nothing of them has been taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("saved worker is damaged: {0}")]
pub struct RestoreError(pub(crate) &'static str);
