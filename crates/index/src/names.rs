//! What a worker calls its blocks.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::hash_table::{Entry, IntoIter};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use warmroute_routing::Tier;

use crate::chunk::BlockId;
use crate::copies::{Copies, Taken};
use crate::event::{EngineHash, Group};

/// A worker's names for blocks, a table for each group: the same hash may mean another copy in another group.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<Group, Table>);

/// The names in one group.
#[derive(Debug, Default)]
pub(crate) struct Table {
    named: HashTable<Named>,
    /// The copies of blocks that have more of them in a tier than [`Few`] counts.
    many: HashMap<EngineHash, Copies>,
    hasher: DefaultHashBuilder,
}

/// What a name means. There is at least one copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    hash: EngineHash,
    pub(crate) block: BlockId,
    copies: Few,
}

/// A few copies by tier, in as many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Few([u8; Tier::COUNT]);

/// What became of a name that was given to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// It has meant nothing before.
    Anew,
    /// It means the block's first copy in this tier, and has meant one in another tier.
    FirstInTier,
    /// It means a copy more.
    Further,
    /// It means another block: nothing has changed.
    Otherwise,
}

// === impl Names ===

impl Names {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.values().all(Table::is_empty)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(|table| table.named.len()).sum()
    }

    /// The memory taken, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.values().map(|table| table.named.allocation_size() + table.many.allocation_size()).sum()
    }

    /// The names in a group. The caller tidies up afterwards.
    pub(crate) fn table(&mut self, group: Group) -> &mut Table {
        self.0.entry(group).or_default()
    }

    /// Drops the table of a group in which there is no name.
    pub(crate) fn tidy(&mut self, group: Group) {
        if self.0.get(&group).is_some_and(Table::is_empty) {
            self.0.remove(&group);
        }
    }

    /// Every name with what it means.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Group, EngineHash, BlockId, Copies)> {
        self.0.iter().flat_map(|(group, table)| {
            table.named.iter().map(|named| (*group, named.hash, named.block, table.copies(named)))
        })
    }

    /// What the names mean, table by table.
    pub(crate) fn into_tables(self) -> impl Iterator<Item = IntoIter<Named>> {
        self.0.into_values().map(|table| table.named.into_iter())
    }
}

// === impl Table ===

impl Table {
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// The block that a name means.
    pub(crate) fn get(&self, hash: EngineHash) -> Option<BlockId> {
        let named = self.named.find(self.hasher.hash_one(hash.0), |named| named.hash == hash)?;
        Some(named.block)
    }

    fn copies(&self, named: &Named) -> Copies {
        named.copies.counts().or_else(|| self.many.get(&named.hash).copied()).unwrap_or_default()
    }

    /// Lets a name stand for one more copy of a block.
    pub(crate) fn bind(&mut self, hash: EngineHash, block: BlockId, tier: Tier) -> Bound {
        let Self { named, many, hasher } = self;
        let rehash = |named: &Named| hasher.hash_one(named.hash.0);
        match named.entry(hasher.hash_one(hash.0), |named| named.hash == hash, rehash) {
            Entry::Vacant(vacant) => {
                vacant.insert(Named { hash, block, copies: Few::one(tier) });
                Bound::Anew
            }
            Entry::Occupied(mut known) if known.get().block == block => {
                let first = known.get_mut().change(many, |copies| copies.add(tier));
                if first { Bound::FirstInTier } else { Bound::Further }
            }
            Entry::Occupied(_) => Bound::Otherwise,
        }
    }

    /// Lets a name that means nothing stand for these copies of a block.
    pub(crate) fn put(&mut self, hash: EngineHash, block: BlockId, copies: Copies) {
        let Self { named, many, hasher } = self;
        let copies = Few::new(hash, copies, many);
        let rehash = |named: &Named| hasher.hash_one(named.hash.0);
        named.insert_unique(hasher.hash_one(hash.0), Named { hash, block, copies }, rehash);
    }

    /// Forgets a name.
    pub(crate) fn remove(&mut self, hash: EngineHash) -> Option<(BlockId, Copies)> {
        let bucket = self.hasher.hash_one(hash.0);
        let named = self.named.find_entry(bucket, |named| named.hash == hash).ok()?.remove().0;
        let copies = named.copies.counts().or_else(|| self.many.remove(&hash)).unwrap_or_default();
        Some((named.block, copies))
    }

    /// Takes one copy in a tier of what a name means, after which there are as many as `left` says, where it does. The name
    /// goes with its last copy. None if it is not known.
    pub(crate) fn take(
        &mut self,
        hash: EngineHash,
        tier: Tier,
        left: Option<u32>,
    ) -> Option<(BlockId, Taken)> {
        let bucket = self.hasher.hash_one(hash.0);
        let mut known = self.named.find_entry(bucket, |named| named.hash == hash).ok()?;
        let block = known.get().block;
        // As most are.
        if known.get().copies == Few::one(tier) && left.unwrap_or(0) == 0 {
            known.remove();
            return Some((block, Taken::Last));
        }
        let (taken, is_gone) =
            known.get_mut().change(&mut self.many, |copies| (copies.take(tier, left), copies.is_empty()));
        if is_gone {
            known.remove();
        }
        Some((block, taken))
    }
}

// === impl Named ===

impl Named {
    fn change<T>(
        &mut self,
        many: &mut HashMap<EngineHash, Copies>,
        change: impl FnOnce(&mut Copies) -> T,
    ) -> T {
        let few = self.copies.counts();
        let mut copies = few.or_else(|| many.get(&self.hash).copied()).unwrap_or_default();
        let outcome = change(&mut copies);
        if few.is_none() {
            many.remove(&self.hash);
        }
        self.copies = Few::new(self.hash, copies, many);
        outcome
    }
}

// === impl Few ===

impl Few {
    /// There are more in some tier.
    const MANY: Self = Self([u8::MAX; Tier::COUNT]);

    /// One copy.
    fn one(tier: Tier) -> Self {
        Self(match tier {
            Tier::Gpu => [1, 0, 0, 0],
            Tier::Cpu => [0, 1, 0, 0],
            Tier::Disk => [0, 0, 1, 0],
            Tier::External => [0, 0, 0, 1],
        })
    }

    /// So many copies, which are kept in `many` under the name if they are not a few.
    fn new(hash: EngineHash, copies: Copies, many: &mut HashMap<EngineHash, Copies>) -> Self {
        let counts = copies.counts();
        if counts.iter().any(|count| *count >= u16::from(u8::MAX)) {
            many.insert(hash, copies);
            return Self::MANY;
        }
        Self(counts.map(|count| count as u8))
    }

    fn counts(self) -> Option<Copies> {
        (self != Self::MANY).then(|| Copies::of_counts(self.0.map(u16::from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;
    use warmroute_routing::hash::{LocalHash, Namespace};

    const NAME: EngineHash = EngineHash(7);

    #[test]
    fn copies_are_counted_beyond_a_few_and_back() {
        let (mut table, mut tree) = (Table::default(), Tree::default());
        let [block, other] = [1, 2].map(|local| tree.root(LocalHash(local), Namespace::default()).unwrap());
        assert_eq!(table.bind(NAME, block, Tier::Gpu), Bound::Anew);
        for _ in 1..700 {
            assert_eq!(table.bind(NAME, block, Tier::Gpu), Bound::Further);
        }
        assert_eq!(table.bind(NAME, block, Tier::Cpu), Bound::FirstInTier);
        assert_eq!(table.bind(NAME, other, Tier::Cpu), Bound::Otherwise);
        for _ in 1..700 {
            assert_eq!(table.take(NAME, Tier::Gpu, None), Some((block, Taken::One)));
        }
        assert!(table.many.is_empty());
        assert_eq!(table.take(NAME, Tier::Gpu, None), Some((block, Taken::Last)));
        assert_eq!(table.take(NAME, Tier::Gpu, None), Some((block, Taken::Nothing)));
        assert_eq!(table.take(NAME, Tier::Cpu, Some(1_000)), Some((block, Taken::One)));
        assert_eq!(table.remove(NAME).map(|(_, copies)| copies.counts()), Some([0, 1_000, 0, 0]));
        assert!(table.many.is_empty() && table.get(NAME).is_none());
    }
}
