//! Blocks whose parent is unknown: an event was lost, or has not come yet.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use warmroute_routing::Tier;

use crate::content::Content;
use crate::copies::{Copies, Taken};
use crate::event::{EngineHash, Group};
use crate::worker::BlockName;

/// A worker's blocks that wait for their parents to be stored. They count for nothing until then.
///
/// The three tables hold the same orphans. An orphan may wait for another one, or in a broken stream even for itself.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    by_name: HashMap<BlockName, Orphan>,
    by_parent: BTreeSet<(BlockName, BlockName)>,
    by_arrival: BTreeMap<u64, BlockName>,
    arrivals: u64,
}

/// A block that waits for its parent. There is at least one copy.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) parent: BlockName,
    arrival: u64,
    pub(crate) content: Content<'static>,
    pub(crate) copies: Copies,
}

// === impl Orphans ===

impl Orphans {
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Keeps a copy of a block. True if another block of that name had to go.
    pub(crate) fn add(
        &mut self,
        name: BlockName,
        parent: BlockName,
        content: Content<'_>,
        tier: Tier,
    ) -> bool {
        let content = content.into_owned();
        if let Some(orphan) = self.by_name.get_mut(&name)
            && orphan.parent == parent
            && orphan.content == content
        {
            orphan.copies.add(tier);
            return false;
        }
        self.put(name, parent, content, Copies::one(tier))
    }

    /// Keeps a block with its copies as the latest. True if another block of that name had to go.
    pub(crate) fn put(
        &mut self,
        name: BlockName,
        parent: BlockName,
        content: Content<'static>,
        copies: Copies,
    ) -> bool {
        let replaced = self.remove(name).is_some();
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.by_name.insert(name, Orphan { parent, arrival, content, copies });
        self.by_parent.insert((parent, name));
        self.by_arrival.insert(arrival, name);
        replaced
    }

    /// All of them, the one that has waited longest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockName, &Orphan)> {
        self.by_arrival.values().filter_map(|name| Some((*name, self.by_name.get(name)?)))
    }

    /// Counts one more copy of a block that is here. False if it is not.
    pub(crate) fn add_copy(&mut self, name: BlockName, tier: Tier) -> bool {
        self.by_name.get_mut(&name).map(|orphan| orphan.copies.add(tier)).is_some()
    }

    /// Takes a copy of a block away, and the block with its last one. `left`: see [`Copies::take`]. False if there is no
    /// such copy.
    pub(crate) fn take_copy(&mut self, name: BlockName, tier: Tier, left: Option<u32>) -> bool {
        let Some(orphan) = self.by_name.get_mut(&name) else { return false };
        let taken = orphan.copies.take(tier, left);
        if orphan.copies.is_empty() {
            self.remove(name);
        }
        taken != Taken::Nothing
    }

    /// Takes a block out, with all its copies.
    pub(crate) fn remove(&mut self, name: BlockName) -> Option<Orphan> {
        let orphan = self.by_name.remove(&name)?;
        self.by_parent.remove(&(orphan.parent, name));
        self.by_arrival.remove(&orphan.arrival);
        Some(orphan)
    }

    /// Takes a block out that waits for `parent`.
    pub(crate) fn take_child(&mut self, parent: BlockName) -> Option<(BlockName, Orphan)> {
        let first = BlockName { group: Group(0), hash: EngineHash(0) };
        let (waits_for, name) = *self.by_parent.range((parent, first)..).next()?;
        if waits_for != parent {
            return None;
        }
        Some((name, self.remove(name)?))
    }

    /// Gives up the block that has waited longest. False if there is none.
    pub(crate) fn drop_oldest(&mut self) -> bool {
        let Some((_, name)) = self.by_arrival.first_key_value() else { return false };
        self.remove(*name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use warmroute_routing::hash::LocalHash;

    use super::*;

    fn name(hash: u64) -> BlockName {
        BlockName { group: Group(0), hash: EngineHash(hash) }
    }

    fn content(local: u64) -> Content<'static> {
        Content::Local(LocalHash(local))
    }

    fn assert_consistent(orphans: &Orphans) {
        assert_eq!(orphans.by_parent.len(), orphans.len());
        assert_eq!(orphans.by_arrival.len(), orphans.len());
    }

    #[test]
    fn equal_blocks_are_counted_and_others_replace_the_name() {
        let mut orphans = Orphans::default();
        assert!(!orphans.add(name(1), name(9), content(5), Tier::Gpu));
        assert!(!orphans.add(name(1), name(9), content(5), Tier::Gpu));
        assert!(orphans.take_copy(name(1), Tier::Gpu, None));
        assert_eq!(orphans.len(), 1);
        assert!(orphans.add(name(1), name(8), content(5), Tier::Gpu));
        assert_consistent(&orphans);
        assert!(orphans.take_child(name(9)).is_none());
        assert!(orphans.take_child(name(8)).is_some());
        assert!(orphans.is_empty());
        assert_consistent(&orphans);
    }

    #[test]
    fn the_oldest_goes_first() {
        let mut orphans = Orphans::default();
        for hash in [3, 1, 2] {
            orphans.add(name(hash), name(9), content(hash), Tier::Gpu);
        }
        assert!(orphans.drop_oldest());
        assert!(orphans.remove(name(3)).is_none());
        assert!(orphans.drop_oldest() && orphans.drop_oldest());
        assert!(!orphans.drop_oldest());
        assert_consistent(&orphans);
    }

    #[test]
    fn a_copy_is_taken_only_from_its_own_tier() {
        let mut orphans = Orphans::default();
        orphans.add(name(1), name(1), content(5), Tier::Cpu);
        assert!(!orphans.take_copy(name(1), Tier::Gpu, None));
        assert!(orphans.take_copy(name(1), Tier::Cpu, None));
        assert!(!orphans.take_copy(name(1), Tier::Cpu, None));
        assert_consistent(&orphans);
    }
}
