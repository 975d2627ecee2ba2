//! Pieces of text and their tokens, bounded in memory.
//!
//! Two generations: what is looked up or added goes into the young one; once that holds half of the bound, the old one is
//! forgotten and the young one takes its place. So whatever was used within the last half is there, nothing is ordered,
//! and every step costs the same. Keys are compared as a whole: a text never gets another text's tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What an entry takes beside its text and tokens: two reference counts, the map's slot.
const ENTRY_BYTES: usize = 96;

/// A cache that all threads share.
#[derive(Debug)]
pub(super) struct PieceCache {
    half: usize,
    generations: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Arc<str>, Arc<[u32]>>,
    young_bytes: usize,
    old: HashMap<Arc<str>, Arc<[u32]>>,
}

// === impl PieceCache ===

impl PieceCache {
    /// A cache of at most so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self { half: bytes / 2, generations: Mutex::default() }
    }

    /// The tokens of each piece that is there.
    pub(super) fn get<'a>(&self, pieces: impl IntoIterator<Item = &'a str>) -> Vec<Option<Arc<[u32]>>> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.into_iter().map(|piece| generations.get(piece, self.half)).collect()
    }

    /// Remembers a piece. One that is larger than half of the bound is not kept.
    pub(super) fn insert(&self, piece: &str, tokens: &Arc<[u32]>) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.insert(Arc::from(piece), Arc::clone(tokens), self.half);
    }
}

// === impl Generations ===

impl Generations {
    fn get(&mut self, piece: &str, half: usize) -> Option<Arc<[u32]>> {
        if let Some(tokens) = self.young.get(piece) {
            return Some(Arc::clone(tokens));
        }
        let (piece, tokens) = self.old.remove_entry(piece)?;
        self.insert(piece, Arc::clone(&tokens), half);
        Some(tokens)
    }

    fn insert(&mut self, piece: Arc<str>, tokens: Arc<[u32]>, half: usize) {
        let bytes = piece.len() + tokens.len() * 4 + ENTRY_BYTES;
        if bytes > half {
            return;
        }
        if self.young_bytes + bytes > half {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(piece, tokens).is_none() {
            self.young_bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(cache: &PieceCache, piece: &str) -> bool {
        cache.get([piece])[0].is_some()
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let cache = PieceCache::new(2 * 10 * (ENTRY_BYTES + 8));
        let tokens: Arc<[u32]> = Arc::from([7]);
        cache.insert("kept", &tokens);
        for i in 0..100 {
            cache.insert(&format!("{i:04}"), &tokens);
            assert!(has(&cache, "kept"), "after {i} others");
        }
        assert!(!has(&cache, "0000"));
        assert_eq!(cache.get(["0099"])[0].as_deref(), Some(&[7][..]));
        let kept = (0..100).filter(|i| has(&cache, &format!("{i:04}"))).count();
        assert!(kept < 20, "{kept} of 20 places");
    }

    #[test]
    fn a_piece_too_large_is_not_kept() {
        let cache = PieceCache::new(1000);
        cache.insert(&"x".repeat(600), &Arc::from([1]));
        assert!(!has(&cache, &"x".repeat(600)));
    }
}
