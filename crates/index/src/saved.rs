//! One worker's part of an index, as bytes that another index takes over.
//!
//! ```text
//! nodes    u32 count, each: parent u32 (its place among the nodes + 1; 0: none)  sequence hash u64
//!                           [namespace u64, where there is no parent]
//! names    u32 count, each: node u32  name  copies
//! orphans  u32 count, oldest first, each: name  parent's name  copies
//!                           0 u8  local hash u64   or   1 u8  tokens u32 count, u32 each  media u32 count, u64 each
//!
//! name     group u32  engine hash u64          copies   u16 for each tier, fastest first
//! ```
//!
//! Everything is little-endian. A node comes after its parent: the blocks that the worker holds, and those before them that
//! it does not hold. Who keeps the bytes adds a checksum: what is damaged and still reads well is taken for true.

use std::collections::HashMap;

use warmroute_routing::Tier;
use warmroute_routing::bytes::Reader;
use warmroute_routing::hash::{LocalHash, Namespace, SequenceHash};

use crate::chunk::BlockId;
use crate::content::Content;
use crate::copies::Copies;
use crate::event::{EngineHash, Group};
use crate::residency::Blocks;
use crate::tree::Tree;
use crate::worker::{BlockName, Ledger};
use crate::{Index, RestoreError, WorkerId};

/// What the bytes say.
#[derive(Debug, Default)]
struct Saved {
    nodes: Vec<SavedNode>,
    names: Vec<(usize, BlockName, Copies)>,
    orphans: Vec<SavedOrphan>,
}

#[derive(Debug)]
struct SavedNode {
    /// Its place among the nodes, before this one.
    parent: Option<usize>,
    hash: SequenceHash,
    /// Heeded where there is no parent.
    namespace: Namespace,
}

#[derive(Debug)]
struct SavedOrphan {
    name: BlockName,
    parent: BlockName,
    copies: Copies,
    content: Content<'static>,
}

// === impl Index ===

impl Index {
    /// What a worker has told so far, as bytes; none if it is not there.
    pub fn save_worker(&self, worker: WorkerId) -> Option<Vec<u8>> {
        Some(save(&self.workers.get(&worker)?.ledger, &self.residency.tree))
    }

    /// Whether [`Index::restore_worker`] would take these bytes over.
    ///
    /// # Errors
    ///
    /// They are damaged.
    pub fn check_saved(bytes: &[u8]) -> Result<(), RestoreError> {
        read(bytes).map(drop)
    }

    /// Takes over what [`Index::save_worker`] wrote of the same worker, in the place of all that it has told here.
    ///
    /// # Errors
    ///
    /// The bytes are damaged, or the worker is not there. Then nothing has changed.
    pub fn restore_worker(&mut self, worker: WorkerId, bytes: &[u8]) -> Result<(), RestoreError> {
        let saved = read(bytes)?;
        let known = self.workers.get(&worker).ok_or(RestoreError("the worker is unknown"))?;
        if !known.ledger.is_empty() {
            self.reset_worker(worker);
        }
        let Some(known) = self.workers.get_mut(&worker) else { return Ok(()) };
        let (residency, ledger, seat) = (&mut self.residency, &mut known.ledger, known.seat);
        residency.pages.begin_step();
        let mut ids: Vec<Option<BlockId>> = Vec::with_capacity(saved.nodes.len());
        let mut namespaced = false;
        for node in &saved.nodes {
            let parent = node.parent.map(|parent| ids.get(parent).copied().flatten());
            let id = match parent {
                None => residency.tree.enter(node.hash, node.namespace, None),
                Some(None) => None,
                Some(Some(parent)) => {
                    let namespace = residency.tree.namespace(parent);
                    namespace.and_then(|namespace| residency.tree.enter(node.hash, namespace, Some(parent)))
                }
            };
            namespaced |= node.parent.is_none() && node.namespace != Namespace::default();
            ids.push(id);
        }
        for (node, name, copies) in saved.names {
            let Some(id) = ids.get(node).copied().flatten() else { continue };
            let table = ledger.names.table(name.group);
            if table.get(name.hash).is_none() {
                table.put(name.hash, id, copies);
                copies.tiers().for_each(|tier| residency.hold(Blocks::one(id), seat, tier));
            }
        }
        // Whatever nobody turned out to hold.
        ids.into_iter().rev().flatten().for_each(|id| residency.tree.prune(id.chunk()));
        for orphan in saved.orphans.into_iter().take(self.options.max_orphans) {
            ledger.orphans.put(orphan.name, orphan.parent, orphan.content, orphan.copies);
        }
        if namespaced {
            self.note_other_namespace();
        }
        Ok(())
    }
}

// === writing ===

fn save(ledger: &Ledger, tree: &Tree) -> Vec<u8> {
    let mut places: HashMap<BlockId, u32> = HashMap::new();
    let mut nodes = Vec::new();
    let mut names: Vec<(u32, BlockName, Copies)> = Vec::with_capacity(ledger.names.len());
    let mut way = Vec::new();
    for (group, hash, block, copies) in ledger.names.iter() {
        // Up to a block that is known, and down again.
        let mut next = Some(block);
        while let Some(id) = next.filter(|id| !places.contains_key(id)) {
            way.push(id);
            next = tree.parent(id);
        }
        while let Some(id) = way.pop() {
            let (Some(hash), Some(namespace)) = (tree.hash(id), tree.namespace(id)) else { continue };
            let parent = tree.parent(id).and_then(|parent| places.get(&parent)).map_or(0, |place| place + 1);
            nodes.extend(parent.to_le_bytes());
            nodes.extend(hash.0.to_le_bytes());
            if parent == 0 {
                nodes.extend(namespace.seed().to_le_bytes());
            }
            places.insert(id, places.len() as u32);
        }
        if let Some(place) = places.get(&block) {
            names.push((*place, BlockName { group, hash }, copies));
        }
    }
    // Blocks are held again from the first on: so each is published once.
    names.sort_unstable_by_key(|(place, name, _)| (*place, *name));
    let mut out = Vec::with_capacity(nodes.len() + names.len() * 24 + 12);
    put_count(&mut out, places.len());
    out.extend(nodes);
    put_count(&mut out, names.len());
    for (place, name, copies) in names {
        out.extend(place.to_le_bytes());
        put_name(&mut out, name);
        put_copies(&mut out, copies);
    }
    put_count(&mut out, ledger.orphans.len());
    for (name, orphan) in ledger.orphans.iter() {
        put_name(&mut out, name);
        put_name(&mut out, orphan.parent);
        put_copies(&mut out, orphan.copies);
        put_content(&mut out, &orphan.content);
    }
    out
}

/// Nodes are counted in a u32, and names and orphans are fewer than memory holds of them.
fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u32).to_le_bytes());
}

fn put_name(out: &mut Vec<u8>, name: BlockName) {
    out.extend(name.group.0.to_le_bytes());
    out.extend(name.hash.0.to_le_bytes());
}

fn put_copies(out: &mut Vec<u8>, copies: Copies) {
    copies.counts().iter().for_each(|count| out.extend(count.to_le_bytes()));
}

fn put_content(out: &mut Vec<u8>, content: &Content<'_>) {
    match content {
        Content::Local(local) => {
            out.push(0);
            out.extend(local.0.to_le_bytes());
        }
        Content::Tokens { tokens, media } => {
            out.push(1);
            put_count(out, tokens.len());
            tokens.iter().for_each(|token| out.extend(token.to_le_bytes()));
            put_count(out, media.len());
            media.iter().for_each(|medium| out.extend(medium.to_le_bytes()));
        }
    }
}

// === reading ===

fn read(bytes: &[u8]) -> Result<Saved, RestoreError> {
    let mut reader = Reader::new(bytes);
    let saved = read_saved(&mut reader).ok_or(RestoreError("it is cut, or names what is not there"))?;
    if reader.is_empty() { Ok(saved) } else { Err(RestoreError("something follows it")) }
}

fn read_saved(reader: &mut Reader<'_>) -> Option<Saved> {
    let mut saved = Saved::default();
    for place in 0..reader.u32()? as usize {
        let parent = (reader.u32()? as usize).checked_sub(1);
        if parent.is_some_and(|parent| parent >= place) {
            return None;
        }
        let hash = SequenceHash(reader.u64()?);
        let namespace = match parent {
            Some(_) => Namespace::default(),
            None => Namespace::of_seed(reader.u64()?),
        };
        saved.nodes.push(SavedNode { parent, hash, namespace });
    }
    for _ in 0..reader.u32()? {
        let node = reader.u32()? as usize;
        let (name, copies) = (read_name(reader)?, read_copies(reader)?);
        if node >= saved.nodes.len() || copies.is_empty() {
            return None;
        }
        saved.names.push((node, name, copies));
    }
    for _ in 0..reader.u32()? {
        let (name, parent, copies) = (read_name(reader)?, read_name(reader)?, read_copies(reader)?);
        let content = read_content(reader)?;
        if copies.is_empty() {
            return None;
        }
        saved.orphans.push(SavedOrphan { name, parent, copies, content });
    }
    Some(saved)
}

fn read_name(reader: &mut Reader<'_>) -> Option<BlockName> {
    Some(BlockName { group: Group(reader.u32()?), hash: EngineHash(reader.u64()?) })
}

fn read_copies(reader: &mut Reader<'_>) -> Option<Copies> {
    let mut counts = [0; Tier::COUNT];
    for count in &mut counts {
        *count = reader.u16()?;
    }
    Some(Copies::of_counts(counts))
}

fn read_content(reader: &mut Reader<'_>) -> Option<Content<'static>> {
    match reader.u8()? {
        0 => Some(Content::Local(LocalHash(reader.u64()?))),
        1 => {
            let tokens: Option<Vec<_>> = (0..reader.u32()?).map(|_| reader.u32()).collect();
            let tokens = tokens?;
            let media: Option<Vec<_>> = (0..reader.u32()?).map(|_| reader.u64()).collect();
            Some(Content::Tokens { tokens: tokens.into(), media: media?.into() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_refused_and_never_panics() {
        let mut whole = Vec::new();
        put_count(&mut whole, 2);
        for (parent, hash) in [(0u32, 5u64), (1, 6)] {
            whole.extend(parent.to_le_bytes());
            whole.extend(hash.to_le_bytes());
            if parent == 0 {
                whole.extend(1337u64.to_le_bytes());
            }
        }
        put_count(&mut whole, 1);
        whole.extend(1u32.to_le_bytes());
        put_name(&mut whole, BlockName { group: Group(0), hash: EngineHash(9) });
        put_copies(&mut whole, Copies::one(Tier::Cpu));
        put_count(&mut whole, 0);
        assert_eq!(read(&whole).unwrap().names.len(), 1);
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err(), "{len}");
        }
        for place in 0..whole.len() {
            let mut other = whole.clone();
            other[place] ^= 0xff;
            let _ = read(&other);
        }
        whole.push(0);
        assert!(read(&whole).is_err());
    }
}
