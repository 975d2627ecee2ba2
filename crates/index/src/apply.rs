//! Applying events: what is checked before anything changes.

use warmroute_routing::Tier;
use warmroute_routing::hash::Namespace;

use crate::content::Content;
use crate::event::{Event, Group, Removed, Stored, StoredLocals};
use crate::store::Change;
use crate::{Applied, EventError, Index, WorkerId};

// === impl Index ===

impl Index {
    /// Applies one event of a worker.
    ///
    /// # Errors
    ///
    /// The worker is unknown, or the event contradicts itself or the index's block size. Then nothing has changed.
    pub fn apply(&mut self, worker: WorkerId, event: &Event) -> Result<Applied, EventError> {
        match event {
            Event::Stored(stored) => self.apply_stored(worker, stored),
            Event::Removed(removed) => self.apply_removed(worker, removed),
            Event::Cleared => self.apply_cleared(worker),
        }
    }

    /// Applies a [`Stored`] event that tells hashes in place of tokens.
    ///
    /// # Errors
    ///
    /// The worker is unknown, or there are not as many hashes of contents as names. Then nothing has changed.
    pub fn apply_locals(&mut self, worker: WorkerId, stored: &StoredLocals) -> Result<Applied, EventError> {
        let StoredLocals { hashes, locals, .. } = stored;
        if locals.len() != hashes.len() {
            return Err(EventError::Locals { locals: locals.len(), hashes: hashes.len() });
        }
        let namespace = Namespace::new(stored.lora.as_deref(), stored.salt.as_deref());
        let mut change = self.change(worker, stored.group, stored.tier)?;
        let blocks = hashes.iter().zip(locals).map(|(hash, local)| (*hash, Content::Local(*local)));
        change.store(stored.parent, namespace, blocks);
        let (applied, nameless) = change.end();
        self.tidy(worker, nameless);
        self.note(namespace);
        Ok(applied)
    }

    fn note(&mut self, namespace: Namespace) {
        if namespace != Namespace::default() {
            self.note_other_namespace();
        }
    }

    /// Readers are told at once when the names in a request begin to matter.
    pub(crate) fn note_other_namespace(&mut self) {
        if !self.namespaced {
            self.namespaced = true;
            self.touch();
        }
    }

    fn apply_stored(&mut self, worker: WorkerId, stored: &Stored) -> Result<Applied, EventError> {
        self.check(stored)?;
        let block_size = self.options.block_size as usize;
        let mut change = self.change(worker, stored.group, stored.tier)?;
        if stored.tokens.is_empty() {
            change.store_known(&stored.hashes);
            let (applied, nameless) = change.end();
            self.tidy(worker, nameless);
            return Ok(applied);
        }
        let namespace = Namespace::new(stored.lora.as_deref(), stored.salt.as_deref());
        let media = stored.media.iter().map(Vec::as_slice).chain(std::iter::repeat(&[][..]));
        let contents = stored.tokens.chunks_exact(block_size).zip(media);
        let blocks = stored.hashes.iter().zip(contents);
        let blocks = blocks.map(|(hash, (tokens, media))| (*hash, Content::tokens(tokens, media)));
        change.store(stored.parent, namespace, blocks);
        let (applied, nameless) = change.end();
        self.tidy(worker, nameless);
        self.note(namespace);
        Ok(applied)
    }

    fn check(&self, stored: &Stored) -> Result<(), EventError> {
        let Stored { hashes, tokens, block_size, media, .. } = stored;
        let expected = self.options.block_size;
        if !media.is_empty() && media.len() != hashes.len() {
            return Err(EventError::Media { media: media.len(), hashes: hashes.len() });
        }
        if tokens.is_empty() {
            return Ok(());
        }
        if *block_size != expected {
            return Err(EventError::BlockSize { expected, actual: *block_size });
        }
        if hashes.len().checked_mul(expected as usize) != Some(tokens.len()) {
            return Err(EventError::Misaligned {
                tokens: tokens.len(),
                hashes: hashes.len(),
                block_size: expected,
            });
        }
        Ok(())
    }

    fn apply_removed(&mut self, worker: WorkerId, removed: &Removed) -> Result<Applied, EventError> {
        let Removed { hashes, left, group, tier } = removed;
        if !left.is_empty() && left.len() != hashes.len() {
            return Err(EventError::Left { left: left.len(), hashes: hashes.len() });
        }
        let mut change = self.change(worker, *group, *tier)?;
        let left = left.iter().copied().map(Some).chain(std::iter::repeat(None));
        change.remove(hashes.iter().copied().zip(left));
        let (applied, nameless) = change.end();
        self.tidy(worker, nameless);
        Ok(applied)
    }

    fn apply_cleared(&mut self, worker: WorkerId) -> Result<Applied, EventError> {
        let ledger = &self.workers.get(&worker).ok_or(EventError::UnknownWorker)?.ledger;
        let cleared = u32::try_from(ledger.names.len() + ledger.orphans.len()).unwrap_or(u32::MAX);
        self.reset_worker(worker);
        Ok(Applied { cleared, ..Applied::default() })
    }

    fn change(&mut self, worker: WorkerId, group: Group, tier: Tier) -> Result<Change<'_>, EventError> {
        let worker = self.workers.get_mut(&worker).ok_or(EventError::UnknownWorker)?;
        self.residency.pages.begin_step();
        Ok(Change {
            residency: &mut self.residency,
            table: worker.ledger.names.table(group),
            orphans: &mut worker.ledger.orphans,
            seat: worker.seat,
            group,
            tier,
            max_orphans: self.options.max_orphans,
            applied: Applied::default(),
            pending: None,
        })
    }

    /// Drops a group in which the worker has no name left.
    fn tidy(&mut self, worker: WorkerId, nameless: Option<Group>) {
        if let Some(group) = nameless
            && let Some(worker) = self.workers.get_mut(&worker)
        {
            worker.ledger.names.tidy(group);
        }
    }
}
