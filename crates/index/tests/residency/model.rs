//! What the index must know, told as plainly as possible: names, copies and whole prefixes. No tree, no increments.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use warmroute_routing::Tier;
use warmroute_routing::hash::{LocalHash, Namespace, SequenceHash};

use super::ops::{Block, Store};

pub(crate) type Name = (u32, u64);

/// A block with everything before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Prefix {
    pub(crate) namespace: Namespace,
    pub(crate) locals: Vec<LocalHash>,
}

/// How many copies in each tier.
pub(crate) type Copies = BTreeMap<Tier, u32>;

#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    name: Name,
    parent: Name,
    block: Block,
    namespace: Namespace,
    copies: Copies,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Worker {
    pub(crate) names: HashMap<Name, (Prefix, Copies)>,
    /// Oldest first.
    pub(crate) orphans: Vec<Orphan>,
}

// === impl Prefix ===

impl Prefix {
    pub(crate) fn after(&self, block: &Block, told_under: Namespace) -> Self {
        let local = block.local(self.namespace, told_under);
        Self { namespace: self.namespace, locals: self.locals.iter().copied().chain([local]).collect() }
    }

    pub(crate) fn hash(&self) -> SequenceHash {
        *SequenceHash::chain(self.locals.iter().copied()).last().unwrap()
    }
}

// === impl Worker ===

impl Worker {
    pub(crate) fn store(&mut self, store: &Store, max_orphans: usize) {
        let namespace = store.namespace();
        let mut parent = store.parent.map(|parent| (store.group, parent));
        let mut above = match parent {
            None => Some(Prefix { namespace, locals: vec![] }),
            Some(parent) => self.names.get(&parent).map(|(prefix, _)| prefix.clone()),
        };
        for (name, block) in &store.blocks {
            let name = (store.group, *name);
            above = match above {
                Some(prefix) => {
                    let prefix = prefix.after(block, namespace);
                    self.bind(name, &prefix, &Copies::from([(store.tier, 1)]));
                    Some(prefix)
                }
                None => self.store_lost(name, parent.unwrap(), block, store),
            };
            parent = Some(name);
        }
        let excess = self.orphans.len().saturating_sub(max_orphans);
        self.orphans.drain(..excess);
    }

    fn store_lost(&mut self, name: Name, parent: Name, block: &Block, store: &Store) -> Option<Prefix> {
        let (tier, namespace) = (store.tier, store.namespace());
        if let Some((prefix, copies)) = self.names.get_mut(&name) {
            if prefix.locals.last() == Some(&block.local(prefix.namespace, namespace)) {
                *copies.entry(tier).or_default() += 1;
                return Some(prefix.clone());
            }
            self.names.remove(&name);
        }
        let same = |orphan: &Orphan| {
            (orphan.name, orphan.parent) == (name, parent)
                && orphan.block.is(block, orphan.namespace, namespace)
        };
        if let Some(orphan) = self.orphans.iter_mut().find(|orphan| same(orphan)) {
            *orphan.copies.entry(tier).or_default() += 1;
            return None;
        }
        self.orphans.retain(|orphan| orphan.name != name);
        let copies = Copies::from([(tier, 1)]);
        self.orphans.push(Orphan { name, parent, block: block.clone(), namespace, copies });
        None
    }

    fn bind(&mut self, name: Name, prefix: &Prefix, more: &Copies) {
        if let Some((old, copies)) = self.names.get_mut(&name)
            && old == prefix
        {
            for (tier, count) in more {
                *copies.entry(*tier).or_default() += count;
            }
            return;
        }
        self.orphans.retain(|orphan| orphan.name != name);
        self.names.insert(name, (prefix.clone(), more.clone()));
        while let Some(at) = self.orphans.iter().position(|orphan| orphan.parent == name) {
            let orphan = self.orphans.remove(at);
            self.bind(orphan.name, &prefix.after(&orphan.block, orphan.namespace), &orphan.copies);
        }
    }

    pub(crate) fn store_known(&mut self, name: Name, tier: Tier) {
        let orphans = self.orphans.iter_mut().map(|orphan| (orphan.name, &mut orphan.copies));
        let mut known = self.names.iter_mut().map(|(name, (_, copies))| (*name, copies)).chain(orphans);
        if let Some((_, copies)) = known.find(|(known, _)| *known == name) {
            *copies.entry(tier).or_default() += 1;
        }
    }

    pub(crate) fn remove(&mut self, name: Name, tier: Tier, left: Option<u32>) -> bool {
        let orphans = self.orphans.iter_mut().map(|orphan| (orphan.name, &mut orphan.copies));
        let mut known = self.names.iter_mut().map(|(name, (_, copies))| (*name, copies)).chain(orphans);
        let Some((_, copies)) = known.find(|(known, _)| *known == name) else { return false };
        let Some(count) = copies.get_mut(&tier) else { return false };
        *count = left.unwrap_or(*count - 1);
        copies.retain(|_, count| *count > 0);
        self.names.retain(|_, (_, copies)| !copies.is_empty());
        self.orphans.retain(|orphan| !orphan.copies.is_empty());
        true
    }

    /// The blocks that the worker has, each with its fastest tier.
    fn resident(&self) -> HashMap<&[LocalHash], Tier> {
        let mut resident = HashMap::new();
        for (prefix, copies) in self.names.values() {
            let tier = *copies.keys().next().unwrap();
            let fastest = resident.entry(prefix.locals.as_slice()).or_insert(tier);
            *fastest = tier.min(*fastest);
        }
        resident
    }

    /// The blocks that a walk from the root finds, each with the slowest tier on the way; and how many it does not.
    pub(crate) fn published(&self) -> (BTreeMap<SequenceHash, Tier>, usize) {
        let resident = self.resident();
        let walk = |locals: &[LocalHash]| {
            (1..=locals.len())
                .map(|n| resident.get(&locals[..n]).copied())
                .try_fold(Tier::Gpu, |slowest, tier| Some(slowest.max(tier?)))
        };
        let hash = |locals: &[LocalHash]| *SequenceHash::chain(locals.iter().copied()).last().unwrap();
        let published: BTreeMap<_, _> =
            resident.keys().filter_map(|locals| Some((hash(locals), walk(locals)?))).collect();
        let missing = resident.len() - published.len();
        (published, missing)
    }

    pub(crate) fn prefixes(&self) -> BTreeSet<Prefix> {
        self.names.values().map(|(prefix, _)| prefix.clone()).collect()
    }
}
