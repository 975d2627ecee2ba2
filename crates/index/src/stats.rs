//! The index in numbers.

use std::collections::BTreeMap;

use warmroute_routing::Tier;

use crate::event::Group;

/// What an event did, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Copies counted of blocks whose place is known.
    pub stored: u32,
    /// Copies taken away, of blocks or of orphans.
    pub removed: u32,
    /// Copies of blocks whose parent is unknown: kept until it is stored.
    pub orphaned: u32,
    /// Orphans that found their place, since this event stored an ancestor of theirs.
    pub attached: u32,
    /// Orphans given up: for want of room, or their name was given to another block.
    pub dropped_orphans: u32,
    /// Names that now mean another block than before; their old copies are forgotten.
    pub renamed: u32,
    /// Removals of a name that is unknown or has no copy in that tier.
    pub unknown_removed: u32,
    /// Blocks stored without tokens whose names are unknown.
    pub skipped: u32,
    /// Names forgotten because the cache was cleared.
    pub cleared: u32,
}

/// How large the index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Published blocks. One that only a retired slot holds counts until it is purged.
    pub blocks: u64,
    /// Published pairs of worker and block.
    pub holdings: u64,
    /// Pairs of worker and block that are held, but not published: an ancestor is missing.
    pub unpublished: u64,
    /// Blocks that wait for their parents.
    pub orphans: u64,
    /// Engines' names for blocks.
    pub names: u64,
    /// Workers.
    pub workers: usize,
    /// Workers that are not listed until the next generation, for want of a slot.
    pub unlisted_workers: usize,
    /// Slots of restarted, cleared or removed workers that are still to be purged.
    pub retired_slots: usize,
    /// Blocks in memory, those that only lead to others included.
    pub nodes: usize,
    /// Blocks that fit in the memory taken so far.
    pub node_capacity: usize,
    /// Entries in the log of changed pages.
    pub change_log: usize,
    /// The memory that blocks, names and pages take, in bytes, by the sizes of the tables that hold them. What orphans,
    /// forks and chunks of more than one holder take beyond is not counted, nor what the allocator adds.
    pub memory_bytes: usize,
}

/// What one worker has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Blocks that are published for it.
    pub published: u64,
    /// Blocks that it holds and that are not published: an ancestor is missing.
    pub unpublished: u64,
    /// Blocks that wait for their parents.
    pub orphans: u64,
    /// Its names for blocks in each group, by the tiers in which they have a copy, as [`Tier::ALL`] lists them. A block
    /// with copies in two tiers counts in both.
    pub by_group: BTreeMap<Group, [u64; Tier::COUNT]>,
}
