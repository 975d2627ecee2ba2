//! Those who read pages: one who remembers every version, and one who fetches only what has changed.
#![allow(dead_code, reason = "each test crate uses a part of it")]

use std::collections::HashMap;

use warmroute_index::Index;
use warmroute_routing::page::{Generation, Page};

use super::support::{Records, listed, read_page};

/// Every page as it was last seen.
#[derive(Default)]
pub(crate) struct History(HashMap<u32, (Generation, u64, Vec<u8>)>);

/// A reader that keeps its own copies and a position.
#[derive(Default)]
pub(crate) struct Follower {
    position: u64,
    pages: HashMap<u32, Vec<u8>>,
}

// === impl History ===

impl History {
    /// A page with other bytes has a higher version, but for retired slots.
    pub(crate) fn check(&mut self, index: &mut Index) {
        let listed = listed(index);
        for number in 0..index.page_bits().page_count() {
            let bytes = index.page(number);
            let header = Page::parse(&bytes).unwrap().header();
            assert_eq!((header.number, header.generation), (number, index.generation()));
            assert_eq!(header.version, index.page_version(number));
            assert!(header.version <= index.version());
            let seen = self.0.insert(number, (header.generation, header.version, bytes.clone()));
            if let Some((generation, version, before)) = seen
                && generation == header.generation
            {
                assert!(version <= header.version);
                let changed = read_page(&before, &listed) != read_page(&bytes, &listed);
                assert!(
                    !changed || version < header.version,
                    "page {number} changed under version {version}"
                );
            }
        }
    }
}

// === impl Follower ===

impl Follower {
    /// Fetches up to `max` pages. True if that were all.
    pub(crate) fn follow(&mut self, index: &mut Index, max: usize) -> bool {
        let changed: Vec<_> = index.changed_since(self.position).collect();
        assert!(changed.is_sorted() && changed.iter().all(|(version, _)| *version > self.position));
        for (version, number) in changed.iter().take(max) {
            assert_eq!(*version, index.page_version(*number));
            self.pages.insert(*number, index.page(*number));
            self.position = *version;
        }
        if changed.len() <= max {
            self.position = index.version();
        }
        changed.len() <= max
    }

    /// What was fetched is all there is.
    pub(crate) fn check(&self, index: &mut Index) {
        let listed = listed(index);
        let copied: Records = self.pages(index).flat_map(|page| read_page(page, &listed)).collect();
        assert_eq!(copied, super::support::read_all(index));
    }

    /// Whether no page that was fetched has a record, of retired slots included.
    pub(crate) fn is_empty(&self, index: &Index) -> bool {
        self.pages(index).all(|bytes| Page::parse(bytes).unwrap().is_empty())
    }

    /// The pages of this generation.
    fn pages(&self, index: &Index) -> impl Iterator<Item = &[u8]> {
        let generation = index.generation();
        let current = move |bytes: &&[u8]| Page::parse(bytes).unwrap().header().generation == generation;
        self.pages.values().map(Vec::as_slice).filter(current)
    }
}
