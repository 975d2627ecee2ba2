//! What was just routed where: a pool's recent routes.
//!
//! An engine tells of a block once it has computed it, and the index has it a moment later. A burst of requests with one new
//! prefix arrives before that, and each of them would look cold. So whoever routes a request writes down which worker was
//! sent which blocks, and for a short time they count as cached there.
//!
//! A route is known by the hashes of a few of its blocks, its *rungs*: a sequence hash names everything before it, so one
//! rung that matches is a prefix that matches. Only blocks that the index does not have yet are written down, at fixed shares
//! of their number: each sixteenth; below the first of these each half of the one before; and behind the last of them 1, 2, 4
//! ... blocks before the end. So a shared beginning is found to within a sixteenth of what was new, a short one to within a
//! half, and where most is shared (a burst of questions about one document), what the first question had of its own counts
//! as twice as long at most. Of a hash the low 32 bits are kept: one foreign prompt in four billion would count as cached
//! for a moment.
//!
//! # Layout, version 2
//!
//! All numbers are little-endian.
//!
//! ```text
//! offset  size  field
//! 0       4     magic, the bytes "WRRR"
//! 4       2     format version, 2
//! 6       2     0
//! 8       8     generation of the index, whose slots the routes are of
//! 16      ...   routes, oldest first: time (8, microseconds since 1970), slot (2), open (1), number of rungs (1),
//!               base (4) and end (4), in blocks; the rungs' hashes (4 each), shallowest first
//! ```
//!
//! The value is at most 16 KiB long: the oldest routes make room for new ones, and those that are over are dropped
//! by whoever writes next.

use warmroute_routing::hash::SequenceHash;
use warmroute_routing::page::{Generation, Slot};

const FORMAT_VERSION: u16 = 2;
const MAGIC: &[u8; 4] = b"WRRR";
const HEAD_BYTES: usize = 16;
const ROUTE_HEAD_BYTES: usize = 20;
const RUNG_BYTES: usize = 4;

/// The most that the value takes: some 130 routes of cold prompts, or 400 of conversations that go on. It is read and
/// written as a whole for each decision, and 16 KiB cost about a microsecond more than nothing.
const MOST_BYTES: usize = 16 * 1024;

/// The rungs' depths, in 256ths of the blocks that are written down, but for those near the end.
const SHARES: [u64; 19] = [1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240];

/// The routes of one generation, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentBook(Vec<u8>);

/// What is written down of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteHead {
    /// When it was routed, in microseconds since 1970.
    pub routed_at_us: u64,
    /// The worker.
    pub slot: Slot,
    /// Whether the prompt went on, and how is not known yet.
    pub open: bool,
    /// Blocks, from the prompt's start, that the index had for the worker.
    pub base: u32,
    /// Blocks that are known of the prompt.
    pub end: u32,
}

/// A route in the book.
#[derive(Clone, Copy, Debug)]
pub struct RecentRoute<'a> {
    /// What it is about.
    pub head: RouteHead,
    rungs: &'a [u8],
}

/// How far a prompt goes along a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Blocks that they share for certain; 0 if no rung matches.
    pub blocks: u32,
    /// Whether the prompt agrees with the route as far as both are known, and may go on doing so.
    pub goes_on: bool,
}

/// The depths of a route's rungs, in blocks, ascending; the last is its end.
fn rungs(base: u32, end: u32) -> impl Iterator<Item = u32> {
    let news = u64::from(end.saturating_sub(base));
    let by_share = SHARES.into_iter().map(move |share| (news * share).div_ceil(256));
    let near_end = (0..news.checked_ilog2().unwrap_or(0)).rev().map(move |power| news - (1 << power));
    let mut last = 0;
    let depths = by_share.chain(near_end).chain([news]);
    let depths = depths.filter(move |depth| {
        let deeper = *depth > last;
        last = last.max(*depth);
        deeper
    });
    // None is deeper than the end.
    depths.map(move |depth| base.saturating_add(u32::try_from(depth).unwrap_or(u32::MAX)))
}

/// What is kept of the hash of the last of so many blocks.
fn rung_hash(hashes: &[SequenceHash], blocks: u32) -> Option<u32> {
    let last = usize::try_from(blocks).ok()?.checked_sub(1)?;
    hashes.get(last).map(|hash| hash.0 as u32)
}

// === impl RecentBook ===

impl RecentBook {
    /// A book without routes.
    pub fn new(generation: Generation) -> Self {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + 128);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&generation.0.to_le_bytes());
        Self(bytes)
    }

    /// Reads the value. What is foreign, of another layout or another generation is as nothing: it is written anew.
    pub fn read(bytes: Vec<u8>, generation: Generation) -> Self {
        let empty = Self::new(generation);
        if bytes.starts_with(&empty.0) { Self(bytes) } else { empty }
    }

    /// The value.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The routes, oldest first. What is cut off at the end is as nothing.
    pub fn routes(&self) -> impl Iterator<Item = RecentRoute<'_>> {
        let mut rest = self.0.get(HEAD_BYTES..).unwrap_or_default();
        std::iter::from_fn(move || RecentRoute::take(&mut rest))
    }

    /// Drops the routes that are over, from the oldest on, and as many more as it takes to make room for a new one.
    fn make_room(&mut self, bytes: usize, now_us: u64, life_us: u64) {
        let mut surplus = (self.0.len() + bytes).saturating_sub(MOST_BYTES);
        let mut dropped = 0;
        for route in self.routes() {
            if surplus == 0 && route.head.lives(now_us, life_us) {
                break;
            }
            let len = ROUTE_HEAD_BYTES + route.rungs.len();
            surplus = surplus.saturating_sub(len);
            dropped += len;
        }
        if dropped > 0 {
            self.0.drain(HEAD_BYTES..(HEAD_BYTES + dropped).min(self.0.len()));
        }
    }

    /// Adds a route with the hashes of its blocks, of which there are as many as its head says. A route without new blocks
    /// is not written down.
    pub fn push(&mut self, head: RouteHead, hashes: &[SequenceHash], life_us: u64) {
        if head.end <= head.base {
            return;
        }
        // A value that broke off would hide what is written behind the break.
        let whole: usize = self.routes().map(|route| ROUTE_HEAD_BYTES + route.rungs.len()).sum();
        self.0.truncate(HEAD_BYTES + whole);
        let rungs = || rungs(head.base, head.end).map_while(|blocks| rung_hash(hashes, blocks));
        let count = rungs().count();
        self.make_room(ROUTE_HEAD_BYTES + count * RUNG_BYTES, head.routed_at_us, life_us);
        self.0.extend_from_slice(&head.routed_at_us.to_le_bytes());
        self.0.extend_from_slice(&head.slot.number().to_le_bytes());
        // There are at most 19 by their shares and 32 near the end.
        self.0.extend_from_slice(&[u8::from(head.open), count as u8]);
        self.0.extend_from_slice(&head.base.to_le_bytes());
        self.0.extend_from_slice(&head.end.to_le_bytes());
        rungs().for_each(|hash| self.0.extend_from_slice(&hash.to_le_bytes()));
    }
}

// === impl RouteHead ===

impl RouteHead {
    /// Whether it still counts. A route from the future is from before the clock went back, and does not.
    pub fn lives(&self, now_us: u64, life_us: u64) -> bool {
        self.routed_at_us.abs_diff(now_us) < life_us
    }
}

// === impl RecentRoute ===

impl<'a> RecentRoute<'a> {
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let (head, tail) = rest.split_first_chunk::<ROUTE_HEAD_BYTES>()?;
        let (time, head) = head.split_first_chunk()?;
        let (slot, head) = head.split_first_chunk()?;
        let ([open, count], head) = head.split_first_chunk()?;
        let (base, end) = head.split_first_chunk()?;
        let (rungs, tail) = tail.split_at_checked(usize::from(*count) * RUNG_BYTES)?;
        *rest = tail;
        let head = RouteHead {
            routed_at_us: u64::from_le_bytes(*time),
            slot: Slot::new(u16::from_le_bytes(*slot))?,
            open: *open != 0,
            base: u32::from_le_bytes(*base),
            end: u32::from_le_bytes(*end.first_chunk()?),
        };
        Some(Self { head, rungs })
    }

    /// How far a prompt whose first blocks have these hashes goes along the route.
    pub fn shared_with(&self, hashes: &[SequenceHash]) -> Shared {
        let mut blocks = 0;
        let known = rungs(self.head.base, self.head.end).zip(self.rungs.chunks_exact(RUNG_BYTES));
        for (depth, rung) in known {
            match rung_hash(hashes, depth) {
                Some(hash) if rung == hash.to_le_bytes() => blocks = depth,
                Some(_) => return Shared { blocks, goes_on: false },
                None => return Shared { blocks, goes_on: blocks > 0 },
            }
        }
        Shared { blocks, goes_on: self.head.open && blocks > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: Generation = Generation(7);
    const SECOND: u64 = 1_000_000;
    const LIFE: u64 = 2 * SECOND;

    fn hashes(seed: u64, blocks: u64) -> Vec<SequenceHash> {
        let mix = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (1..=blocks).map(|i| SequenceHash(mix(mix(seed) ^ i))).collect()
    }

    fn head(slot: u16, base: u32, end: u32) -> RouteHead {
        RouteHead { routed_at_us: SECOND, slot: Slot::new(slot).unwrap(), open: false, base, end }
    }

    fn book(head: RouteHead, hashes: &[SequenceHash]) -> RecentBook {
        let mut book = RecentBook::new(GENERATION);
        book.push(head, hashes, LIFE);
        book
    }

    fn shared(book: &RecentBook, hashes: &[SequenceHash]) -> Shared {
        book.routes().next().unwrap().shared_with(hashes)
    }

    #[test]
    fn the_same_prompt_is_shared_whole_and_another_not_at_all() {
        for blocks in [1, 2, 7, 20, 21, 250, 8192] {
            let prompt = hashes(1, u64::from(blocks));
            let book = book(head(3, 0, blocks), &prompt);
            assert_eq!(shared(&book, &prompt), Shared { blocks, goes_on: false });
            assert_eq!(shared(&book, &hashes(2, u64::from(blocks))), Shared::default());
        }
    }

    #[test]
    fn a_shared_beginning_is_found_to_within_a_sixteenth_a_half_or_the_rest_and_never_too_deep() {
        let first = hashes(1, 1024);
        let book = book(head(3, 0, 1024), &first);
        for common in 4..1024usize {
            let prompt: Vec<_> =
                first[..common].iter().copied().chain(hashes(2, 1100 - common as u64)).collect();
            let Shared { blocks, goes_on } = shared(&book, &prompt);
            let blocks = blocks as usize;
            // 1,024 - 64 is a rung by either rule.
            let least = match common {
                ..64 => common.div_ceil(2),
                64..960 => common - 63,
                _ => 1024 - 2 * (1024 - common),
            };
            assert!(blocks <= common && blocks >= least && !goes_on, "{blocks} of {common}");
        }
    }

    #[test]
    fn a_prompt_that_still_arrives_may_go_on_along_a_route_until_it_has_left_it() {
        let first = hashes(1, 100);
        let whole = book(head(3, 0, 100), &first);
        assert!(shared(&whole, &first[..30]).goes_on);
        let other: Vec<_> = first[..30].iter().copied().chain(hashes(2, 40)).collect();
        assert!(!shared(&whole, &other).goes_on);
        // Where the route's own prompt still arrives, the end of what is known is not its end.
        let open = book(RouteHead { open: true, ..head(3, 0, 30) }, &first);
        assert_eq!(shared(&open, &first), Shared { blocks: 30, goes_on: true });
        assert!(!shared(&open, &hashes(2, 100)).goes_on);
    }

    #[test]
    fn only_what_is_new_is_written_down() {
        let prompt = hashes(1, 640);
        let book = book(head(3, 639, 640), &prompt);
        assert_eq!(book.bytes().len(), HEAD_BYTES + ROUTE_HEAD_BYTES + RUNG_BYTES);
        assert_eq!(shared(&book, &prompt).blocks, 640);
        let nothing_new = self::book(head(3, 640, 640), &prompt);
        assert_eq!(nothing_new.routes().count(), 0);
    }

    #[test]
    fn routes_that_are_over_are_dropped_and_the_value_stays_bounded() {
        let prompt = hashes(1, 250);
        let mut book = RecentBook::new(GENERATION);
        for i in 0..5_000 {
            book.push(RouteHead { routed_at_us: SECOND + i, ..head(1, 0, 250) }, &prompt, LIFE);
            assert!(book.bytes().len() <= MOST_BYTES);
        }
        let times: Vec<_> = book.routes().map(|route| route.head.routed_at_us).collect();
        assert!(times.len() >= 130 && times.is_sorted() && times.last() == Some(&(SECOND + 4_999)));
        book.push(RouteHead { routed_at_us: 4 * SECOND, ..head(1, 0, 250) }, &prompt, LIFE);
        assert_eq!(book.routes().count(), 1);
    }

    #[test]
    fn what_is_cut_foreign_or_of_another_generation_is_as_nothing() {
        let prompt = hashes(1, 50);
        let mut book = book(head(1, 0, 50), &prompt);
        book.push(head(2, 0, 50), &prompt, LIFE);
        let bytes = book.bytes().to_vec();
        assert_eq!(RecentBook::read(bytes.clone(), GENERATION).routes().count(), 2);
        assert_eq!(RecentBook::read(bytes.clone(), Generation(8)).routes().count(), 0);
        assert_eq!(RecentBook::read(b"WRLD".to_vec(), GENERATION).routes().count(), 0);
        for cut in 0..bytes.len() {
            let mut cut = RecentBook::read(bytes[..cut].to_vec(), GENERATION);
            assert!(cut.routes().count() < 2);
            // What is written behind the break is found.
            cut.push(head(9, 0, 50), &prompt, LIFE);
            assert_eq!(cut.routes().last().unwrap().head.slot.number(), 9);
        }
    }
}
