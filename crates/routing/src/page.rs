//! The page: the unit in which the index is published.
//!
//! The index is a hash table cut into `2^bits` pages. A page holds a record for each of its published blocks: the block's
//! sequence hash and the workers that hold it, each with the tier in which a walk from the prompt's start finds the block.
//!
//! # Which block is in which page
//!
//! A prompt is cut into runs of [`RUN_BLOCKS`] blocks, from its start. A run shares a page: that of its *head*, the run's
//! first block, whose page is the top `bits` bits of its sequence hash ([`PageBits::page_of`]). So a lookup that has read a
//! page knows of sixteen blocks, and a new prompt changes one page for sixteen blocks.
//!
//! ```text
//! blocks  0 1 2 ... 15 | 16 17 ... 31 | 32 ...
//! page of 0            | 16           | 32
//! ```
//!
//! Where many prompts part inside a run, all its branches would crowd one page. Such a run is marked in its head's
//! record; its other blocks then stand each in the page of its own hash. The head's page is the same either way.
//!
//! # Layout, version 2
//!
//! All numbers are little-endian. `n` is the number of records, `m` the number of holders of all records together.
//!
//! ```text
//! offset      size  field
//! 0           4     magic, the bytes "WRPG"
//! 4           2     format version, 2
//! 6           2     zero
//! 8           4     the page's number
//! 12          4     n
//! 16          8     generation of the index that the page belongs to
//! 24          8     version: the index's position when the page last changed
//! 32          8n    sequence hashes, strictly ascending
//! 32 + 8n     4n    ends: bits 0..31: the holders of record i are those from ends[i-1] (0 for i = 0) up to ends[i], in
//!                   holders; bit 31: the block is the head of a crowded run
//! 32 + 12n    2m    holders: bits 0..14 the worker's slot, bits 14..16 the tier; ascending by slot within a record
//! ```
//!
//! `m` is the last end (0 for an empty page), and a page's length is exactly `32 + 12n + 2m`: a cut page is an error.
//! So is a page of another format, number or generation; whoever reads it treats the page as absent. A record with one
//! holder takes 14 bytes. Hashes stand together so that the search touches few cache lines.

use crate::bytes::Reader;
use crate::hash::SequenceHash;
use crate::tier::Tier;

/// The number of this layout.
pub const FORMAT_VERSION: u16 = 2;

/// Blocks in a run. With 8 or 32 a lookup reads as many pages to within one; 16 keeps a page with a run or two small.
pub const RUN_BLOCKS: u32 = 16;

const MAGIC: &[u8; 4] = b"WRPG";
const HEADER_LEN: usize = 32;
const HASH_LEN: usize = 8;
const END_LEN: usize = 4;
const HOLDER_LEN: usize = 2;
/// In an end: the block is the head of a crowded run.
const CROWDED: u32 = 1 << 31;

/// A generation of the index: changed when the collector restarts, when the number of pages or the block size changes.
/// Pages of different generations never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// A worker's place in the pool's worker table, unique within a generation. At most [`Slot::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

/// How many leading bits of a sequence hash choose its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBits(u8);

/// A worker that holds a block, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The worker.
    pub slot: Slot,
    /// The tier in which a walk from the prompt's start finds the block: never faster than that of the block before.
    pub tier: Tier,
}

/// What a page says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The page's number.
    pub number: u32,
    /// The generation it belongs to.
    pub generation: Generation,
    /// The index's position when the page last changed.
    pub version: u64,
}

/// A page's bytes, checked in all that a lookup relies on for its safety.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    header: PageHeader,
    hashes: &'a [[u8; HASH_LEN]],
    ends: &'a [[u8; END_LEN]],
    holders: &'a [[u8; HOLDER_LEN]],
}

/// Where the parts of a page are that was parsed, so that it need not be parsed again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageCuts {
    header: PageHeader,
    records: usize,
}

/// The workers that hold one block.
#[derive(Clone, Copy, Debug)]
pub struct Holders<'a>(&'a [[u8; HOLDER_LEN]]);

/// What a page tells of one block.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The workers that hold it.
    pub holders: Holders<'a>,
    /// It is the head of a run whose other blocks stand in the pages of their own hashes.
    pub crowded: bool,
}

/// Why bytes are not a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The bytes end before what they announce, or go on after it.
    #[error("page has {actual} bytes where its header announces {expected}")]
    Length {
        /// What the header announces; the header's own length if that is cut.
        expected: usize,
        /// What is there.
        actual: usize,
    },
    /// Not a page at all.
    #[error("page does not begin with its magic bytes")]
    Magic,
    /// A page of another layout.
    #[error("page has format version {0}, not {FORMAT_VERSION}")]
    Version(u16),
    /// The records are not in order, or a record's end lies before its start.
    #[error("page's records are out of order at record {0}")]
    Order(usize),
}

/// Builds a page's bytes record by record.
///
/// ```
/// use warmroute_routing::hash::SequenceHash;
/// use warmroute_routing::page::{Generation, Holder, Page, PageHeader, PageWriter, Slot};
/// use warmroute_routing::Tier;
///
/// let header = PageHeader { number: 3, generation: Generation(7), version: 1 };
/// let holder = Holder { slot: Slot::new(5).unwrap(), tier: Tier::Gpu };
/// let mut writer = PageWriter::default();
/// writer.record(SequenceHash(42), [holder]);
/// let bytes = writer.finish(header);
/// let page = Page::parse(&bytes).unwrap();
/// assert_eq!(page.find(SequenceHash(42)).unwrap().holders.iter().collect::<Vec<_>>(), [holder]);
/// assert!(page.find(SequenceHash(43)).is_none());
/// ```
#[derive(Debug, Default)]
pub struct PageWriter {
    hashes: Vec<u8>,
    ends: Vec<u8>,
    holders: Vec<u8>,
}

// === impl Slot ===

impl Slot {
    /// The largest slot: 14 bits.
    pub const MAX: u16 = (1 << 14) - 1;

    /// A slot, if the number is small enough.
    pub fn new(number: u16) -> Option<Self> {
        (number <= Self::MAX).then_some(Self(number))
    }

    /// The slot's number.
    pub fn number(self) -> u16 {
        self.0
    }
}

// === impl PageBits ===

impl PageBits {
    /// At most 2^24 pages: 16 million pages of some 16 records hold more blocks than a pool has.
    pub const MAX: u8 = 24;

    /// A number of bits up to [`PageBits::MAX`].
    pub const fn new(bits: u8) -> Option<Self> {
        if bits <= Self::MAX { Some(Self(bits)) } else { None }
    }

    /// The number of bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// How many pages there are.
    pub fn page_count(self) -> u32 {
        1 << self.0
    }

    /// The page of a hash: that of a run's head for the whole run, that of the block itself in a crowded run.
    pub fn page_of(self, hash: SequenceHash) -> u32 {
        // A shift by 64 is not defined, so one page is a case of its own.
        if self.0 == 0 { 0 } else { (hash.0 >> (64 - u32::from(self.0))) as u32 }
    }
}

// === impl Holder ===

impl Holder {
    fn encode(self) -> [u8; HOLDER_LEN] {
        (self.slot.0 | (self.tier as u16) << 14).to_le_bytes()
    }

    fn decode(bytes: [u8; HOLDER_LEN]) -> Self {
        let bits = u16::from_le_bytes(bytes);
        Self { slot: Slot(bits & Slot::MAX), tier: Tier::from_bits(bits >> 14) }
    }
}

// === impl Page ===

impl<'a> Page<'a> {
    /// Reads the header and cuts the bytes into their parts, without looking at each record: a lookup in what this
    /// accepts cannot fail, whatever the bytes are. [`Page::verify`] looks at the records too.
    ///
    /// # Errors
    ///
    /// Another magic or format version, or a length that is not exactly what the header announces.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PageError> {
        let cut = PageError::Length { expected: HEADER_LEN, actual: bytes.len() };
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len()).ok_or(cut)? != MAGIC {
            return Err(PageError::Magic);
        }
        let version = reader.u16().ok_or(cut)?;
        if version != FORMAT_VERSION {
            return Err(PageError::Version(version));
        }
        reader.u16().ok_or(cut)?;
        let number = reader.u32().ok_or(cut)?;
        let records = reader.u32().ok_or(cut)? as usize;
        let generation = Generation(reader.u64().ok_or(cut)?);
        let version = reader.u64().ok_or(cut)?;

        let expected = HEADER_LEN.saturating_add(records.saturating_mul(HASH_LEN + END_LEN));
        let short = PageError::Length { expected, actual: bytes.len() };
        let (hashes, _) = reader.take(records.saturating_mul(HASH_LEN)).ok_or(short)?.as_chunks();
        let (ends, _) = reader.take(records.saturating_mul(END_LEN)).ok_or(short)?.as_chunks::<END_LEN>();
        let holders = ends.last().map_or(0, |end| end_of(*end).0).saturating_mul(HOLDER_LEN);
        let wrong = PageError::Length { expected: expected.saturating_add(holders), actual: bytes.len() };
        let (holders, _) = reader.take(holders).ok_or(wrong)?.as_chunks();
        if !reader.is_empty() {
            return Err(wrong);
        }
        Ok(Self { header: PageHeader { number, generation, version }, hashes, ends, holders })
    }

    /// Where the page's parts are in its bytes.
    pub(crate) fn cuts(&self) -> PageCuts {
        PageCuts { header: self.header, records: self.hashes.len() }
    }

    /// The page that was parsed from these very bytes before.
    pub(crate) fn at_cuts(bytes: &'a [u8], cuts: PageCuts) -> Option<Self> {
        let (hashes, rest) = bytes.get(HEADER_LEN..)?.split_at_checked(cuts.records * HASH_LEN)?;
        let (ends, holders) = rest.split_at_checked(cuts.records * END_LEN)?;
        let (hashes, ends, holders) = (hashes.as_chunks().0, ends.as_chunks().0, holders.as_chunks().0);
        Some(Self { header: cuts.header, hashes, ends, holders })
    }

    /// Checks that the records are in order, so that every one of them can be found. Whoever takes pages from outside
    /// does this once, before it stores them.
    ///
    /// # Errors
    ///
    /// [`PageError::Order`] with the first record that is out of order.
    pub fn verify(&self) -> Result<(), PageError> {
        let mut last_hash = None;
        let mut last_end = 0;
        for (i, (hash, end)) in self.hashes.iter().zip(self.ends).enumerate() {
            let (hash, (end, _)) = (u64::from_le_bytes(*hash), end_of(*end));
            if last_hash.is_some_and(|last| last >= hash) || end < last_end || end > self.holders.len() {
                return Err(PageError::Order(i));
            }
            (last_hash, last_end) = (Some(hash), end);
        }
        Ok(())
    }

    /// What the page says of itself.
    pub fn header(&self) -> PageHeader {
        self.header
    }

    /// How many blocks the page tells of.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether the page tells of no block.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// What is told of a block, if it is published and stands here.
    pub fn find(&self, hash: SequenceHash) -> Option<Record<'a>> {
        self.record(self.locate(hash)?)
    }

    /// The place of a block's record.
    pub(crate) fn locate(&self, hash: SequenceHash) -> Option<usize> {
        self.hashes.binary_search_by_key(&hash.0, |bytes| u64::from_le_bytes(*bytes)).ok()
    }

    /// What is told in the record in this place.
    pub(crate) fn record(&self, record: usize) -> Option<Record<'a>> {
        let start = match record.checked_sub(1) {
            Some(before) => end_of(*self.ends.get(before)?).0,
            None => 0,
        };
        let (end, crowded) = end_of(*self.ends.get(record)?);
        Some(Record { holders: self.holders.get(start..end).map(Holders)?, crowded })
    }

    /// Every record, in ascending order of hashes.
    pub fn records(&self) -> impl Iterator<Item = (SequenceHash, Record<'a>)> + '_ {
        self.hashes
            .iter()
            .enumerate()
            .filter_map(|(i, hash)| Some((SequenceHash(u64::from_le_bytes(*hash)), self.record(i)?)))
    }
}

/// An end, and whether its block is the head of a crowded run.
fn end_of(bytes: [u8; END_LEN]) -> (usize, bool) {
    let end = u32::from_le_bytes(bytes);
    ((end & !CROWDED) as usize, end & CROWDED != 0)
}

// === impl Holders ===

impl<'a> Holders<'a> {
    /// The holders, in ascending order of slots.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Holder> + 'a {
        self.0.iter().map(|bytes| Holder::decode(*bytes))
    }
}

// === impl PageWriter ===

impl PageWriter {
    /// Adds a block. Records come in strictly ascending order of hashes, holders in ascending order of slots.
    pub fn record(&mut self, hash: SequenceHash, holders: impl IntoIterator<Item = Holder>) {
        self.add(hash, holders, 0);
    }

    /// Adds a block that is the head of a crowded run.
    pub fn crowded(&mut self, hash: SequenceHash, holders: impl IntoIterator<Item = Holder>) {
        self.add(hash, holders, CROWDED);
    }

    fn add(&mut self, hash: SequenceHash, holders: impl IntoIterator<Item = Holder>, mark: u32) {
        self.hashes.extend_from_slice(&hash.0.to_le_bytes());
        for holder in holders {
            self.holders.extend_from_slice(&holder.encode());
        }
        let end = (self.holders.len() / HOLDER_LEN) as u32;
        self.ends.extend_from_slice(&(end | mark).to_le_bytes());
    }

    /// The page's bytes. The writer is empty again afterwards and keeps its memory.
    pub fn finish(&mut self, header: PageHeader) -> Vec<u8> {
        let records = (self.hashes.len() / HASH_LEN) as u32;
        let body = self.hashes.len() + self.ends.len() + self.holders.len();
        let mut out = Vec::with_capacity(HEADER_LEN + body);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&header.number.to_le_bytes());
        out.extend_from_slice(&records.to_le_bytes());
        out.extend_from_slice(&header.generation.0.to_le_bytes());
        out.extend_from_slice(&header.version.to_le_bytes());
        for part in [&mut self.hashes, &mut self.ends, &mut self.holders] {
            out.append(part);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: PageHeader = PageHeader { number: 9, generation: Generation(0xABCD), version: 77 };

    fn page_of(records: &[(u64, Vec<Holder>)]) -> Vec<u8> {
        let mut writer = PageWriter::default();
        for (hash, holders) in records {
            let (hash, holders) = (SequenceHash(*hash), holders.iter().copied());
            if hash.0 % 3 == 0 { writer.crowded(hash, holders) } else { writer.record(hash, holders) }
        }
        writer.finish(HEADER)
    }

    fn any_records() -> impl Strategy<Value = Vec<(u64, Vec<Holder>)>> {
        let holder = (0..=Slot::MAX, 0..4u16).prop_map(|(slot, tier)| (slot, Tier::from_bits(tier)));
        let holders = proptest::collection::btree_map(0..=Slot::MAX, holder, 0..5).prop_map(|map| {
            map.into_iter().map(|(slot, (_, tier))| Holder { slot: Slot(slot), tier }).collect()
        });
        proptest::collection::btree_map(any::<u64>(), holders, 0..20)
            .prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #[test]
        fn finds_what_was_written_and_nothing_else(records in any_records(), absent in any::<u64>()) {
            let bytes = page_of(&records);
            let page = Page::parse(&bytes).unwrap();
            page.verify().unwrap();
            prop_assert_eq!(page.header(), HEADER);
            for (hash, holders) in &records {
                let found = page.find(SequenceHash(*hash)).unwrap();
                prop_assert_eq!(found.crowded, hash % 3 == 0);
                let found: Vec<_> = found.holders.iter().collect();
                prop_assert_eq!(&found, holders);
            }
            if records.iter().all(|(hash, _)| *hash != absent) {
                prop_assert!(page.find(SequenceHash(absent)).is_none());
            }
        }

        #[test]
        fn a_page_cut_anywhere_or_with_a_byte_too_many_is_an_error(records in any_records(), at in any::<usize>()) {
            let mut bytes = page_of(&records);
            let cut = at % bytes.len();
            prop_assert!(Page::parse(&bytes[..cut]).is_err());
            bytes.push(0);
            prop_assert!(Page::parse(&bytes).is_err());
        }

        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), records in 0..16u32) {
            // Most random bytes end at the magic: let these go on.
            let head = [MAGIC.as_slice(), &FORMAT_VERSION.to_le_bytes()].concat();
            for (to, from) in bytes.iter_mut().zip(head) {
                *to = from;
            }
            if let Some(count) = bytes.get_mut(12..16) {
                count.copy_from_slice(&records.to_le_bytes());
            }
            if let Ok(page) = Page::parse(&bytes) {
                let _ = page.verify();
                page.find(SequenceHash(0));
                page.records().for_each(|(_, record)| record.holders.iter().for_each(drop));
            }
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let good = page_of(&[(1, vec![])]);
        let mut foreign = good.clone();
        foreign[0] = b'X';
        assert_eq!(Page::parse(&foreign).unwrap_err(), PageError::Magic);
        let mut newer = good.clone();
        newer[4] = 3;
        assert_eq!(Page::parse(&newer).unwrap_err(), PageError::Version(3));
        assert!(matches!(Page::parse(&[]), Err(PageError::Length { .. })));
    }

    #[test]
    fn records_out_of_order_do_not_verify() {
        let bytes = page_of(&[(2, vec![]), (1, vec![])]);
        assert_eq!(Page::parse(&bytes).unwrap().verify(), Err(PageError::Order(1)));
    }

    #[test]
    fn a_page_number_is_the_hashs_top_bits() {
        let hash = SequenceHash(0xF000_0000_0000_0001);
        let page = |bits| PageBits::new(bits).unwrap().page_of(hash);
        assert_eq!((page(0), page(1), page(4), page(24)), (0, 1, 15, 0x00F0_0000));
        assert!(PageBits::new(25).is_none());
    }
}
