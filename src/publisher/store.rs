//! Writing an answer into shared data.
//!
//! Readers may look at any moment, so the order is: pages, then the published pool, then (at leisure) the emptying of
//! what nobody reads any more. A page is written by compare-and-swap and never over a later version of its generation.

use warmroute_routing::feed::{Answer, Cursor};
use warmroute_routing::page::{Generation, Page, PageHeader};

use crate::host::{Host, NotWritten, SharedValue, WriteIf};
use crate::shared::{KeySet, PoolKeys, Published};

/// Attempts at one value. A second is needed only where two publishers overlap for a moment.
const ATTEMPTS: u32 = 3;

/// Old pages looked at in one tick: some 2 us each, so a tick stays under 2 ms.
const TIDY_PAGES: u32 = 512;

/// The writing side of a pool's shared data.
#[derive(Debug)]
pub(super) struct Store {
    keys: PoolKeys,
    /// Where the feed stands.
    pub(super) cursor: Cursor,
    /// When the lease ends that allows writing, in microseconds since 1970.
    pub(super) lease_ends_at_us: u64,
    /// The pages that nobody reads any more.
    leftover: Option<Leftover>,
}

#[derive(Clone, Copy, Debug)]
struct Leftover {
    set: KeySet,
    next_page: u32,
    page_count: u32,
}

/// What was stored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    /// Pages written.
    pub(super) pages: u64,
    /// Whether a generation's full copy is complete with it.
    pub(super) completed_copy: bool,
}

/// Why an answer was not stored whole. The cursor has not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreError {
    /// The lease is over: another may be writing.
    LeaseOver,
    /// The host refused, or another kept writing.
    NotWritten,
    /// The feed stands before the published position of its own generation: that one was wrong. The next answer makes a
    /// full copy.
    PositionWentBack,
}

/// The published pool as a writer needs it.
struct Current {
    set: KeySet,
    position: u64,
    generation: Generation,
    page_count: u32,
}

// === impl Store ===

impl Store {
    pub(super) fn new(pool: &str) -> Self {
        Self { keys: PoolKeys::new(pool), cursor: Cursor::START, lease_ends_at_us: 0, leftover: None }
    }

    pub(super) fn lease_key(&self) -> &str {
        self.keys.lease()
    }

    /// Goes on where whoever published before has left off.
    pub(super) fn resume(&mut self, host: &impl Host) {
        self.leftover = None;
        let current = host.shared(self.keys.published()).and_then(|value| Current::decode(&value.bytes));
        self.cursor = current.map_or(Cursor::START, |current| Cursor {
            generation: current.generation,
            position: current.position,
            next_page: current.page_count,
        });
    }

    /// Writes an answer's pages and, unless a full copy goes on, the pool that refers to them.
    pub(super) fn take_in(&mut self, host: &impl Host, answer: &Answer<'_>) -> Result<Stored, StoreError> {
        let value = host.shared(self.keys.published());
        let current = value.as_ref().and_then(|value| Current::decode(&value.bytes));
        let follows = current.as_ref().filter(|current| current.generation == answer.cursor.generation);
        let set = match (follows, &current) {
            (Some(current), _) => current.set,
            (None, Some(current)) => current.set.other(),
            (None, None) => KeySet::A,
        };
        if self.leftover.is_some_and(|leftover| leftover.set == set) && follows.is_none() {
            // The old pages are overwritten now; those that are not are of another generation and count as absent.
            self.leftover = None;
        }
        let copying = !self.cursor.is_complete(answer.pool.page_bits) || self.cursor == Cursor::START;
        if follows.is_some_and(|current| current.position > answer.cursor.position) && !copying {
            self.cursor = Cursor::START;
            return Err(StoreError::PositionWentBack);
        }
        let mut stored = Stored::default();
        for (page, bytes) in &answer.pages {
            stored.pages += u64::from(self.write_page(host, set, page.header(), bytes)?);
        }
        if answer.cursor.is_complete(answer.pool.page_bits) {
            self.publish(host, value.as_ref(), set, answer)?;
            if follows.is_none() {
                stored.completed_copy = true;
                self.leftover =
                    current.map(|old| Leftover { set: old.set, next_page: 0, page_count: old.page_count });
            }
        }
        self.cursor = answer.cursor;
        Ok(stored)
    }

    fn publish(
        &self,
        host: &impl Host,
        found: Option<&SharedValue>,
        set: KeySet,
        answer: &Answer<'_>,
    ) -> Result<(), StoreError> {
        let position = answer.cursor.position;
        let published = Published { set, position, heard_at_us: host.now_us(), pool: answer.pool_bytes };
        let condition = found.map_or(WriteIf::Absent, |value| WriteIf::Unchanged(value.cas));
        host.set_shared(self.keys.published(), &published.encode(), condition)
            .map_err(|NotWritten| StoreError::NotWritten)
    }

    /// Whether the page was written: it is not, where a later version is there already.
    fn write_page(
        &mut self,
        host: &impl Host,
        set: KeySet,
        header: PageHeader,
        bytes: &[u8],
    ) -> Result<bool, StoreError> {
        let key = self.keys.page(set, header.number);
        for _ in 0..ATTEMPTS {
            // A thread that stood still for as long as its lease must not write into what a successor has built.
            if host.now_us() >= self.lease_ends_at_us {
                return Err(StoreError::LeaseOver);
            }
            let found = host.shared(key);
            if found.as_ref().is_some_and(|value| has_later_version(&value.bytes, header)) {
                return Ok(false);
            }
            let condition = found.map_or(WriteIf::Absent, |value| WriteIf::Unchanged(value.cas));
            if host.set_shared(key, bytes, condition).is_ok() {
                return Ok(true);
            }
        }
        Err(StoreError::NotWritten)
    }

    /// Empties some of the pages that nobody reads any more, so that their memory is given back.
    pub(super) fn tidy(&mut self, host: &impl Host) {
        let Some(leftover) = &mut self.leftover else { return };
        let end = leftover.next_page.saturating_add(TIDY_PAGES).min(leftover.page_count);
        for number in leftover.next_page..end {
            let key = self.keys.page(leftover.set, number);
            if let Some(value) = host.shared(key).filter(|value| !value.bytes.is_empty()) {
                // If somebody else has written it meanwhile, it is no leftover.
                let _ = host.set_shared(key, &[], WriteIf::Unchanged(value.cas));
            }
        }
        leftover.next_page = end;
        if end == leftover.page_count {
            self.leftover = None;
        }
    }
}

fn has_later_version(bytes: &[u8], header: PageHeader) -> bool {
    let found = Page::parse(bytes).map(|page| page.header());
    found.is_ok_and(|found| found.generation == header.generation && found.version >= header.version)
}

// === impl Current ===

impl Current {
    /// None for what cannot be read: it is replaced as if it were not there.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let published = Published::decode(bytes).ok()?;
        let pool = published.decode_pool().ok()?;
        Some(Self {
            set: published.set,
            position: published.position,
            generation: pool.generation,
            page_count: pool.page_bits.page_count(),
        })
    }
}
