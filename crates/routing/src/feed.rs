//! The feed: how a publisher asks the collector for changed pages, and the bytes of the answer.
//!
//! A publisher sends the [`Cursor`] it stands at and gets the pool, some whole pages and a new cursor. There is one
//! mechanism for a new publisher, a lost answer and a collector restart: the cursor. Where its generation is not the
//! collector's, the answer starts a full copy at page 0: the cursor's position is the index's position at the start of
//! the copy and stays so until [`Cursor::is_complete`]. From then on an answer holds the pages that changed after the
//! position, oldest change first, so that an answer bounded in size may stop after any page.
//!
//! A page that changed during the copy is sent again afterwards; sending a page twice does no harm.
//!
//! # Answer, version 1
//!
//! All numbers are little-endian; a chunk is its length in 4 bytes, then its bytes.
//!
//! ```text
//! offset  size  field
//! 0       4     magic, the bytes "WRFD"
//! 4       2     format version, 1
//! 6       2     zero
//! 8       8     new cursor: generation
//! 16      8     new cursor: position
//! 24      4     new cursor: next page
//! 28      4     number of pages in this answer
//! 32      ...   the pool, a chunk (see the `pool` module)
//! ...     ...   the pages, a chunk each (see the `page` module)
//! ```
//!
//! In a full copy empty pages are left out; their last state in an older generation cannot be mistaken for one of this.

use crate::bytes::Reader;
use crate::page::{Generation, Page, PageBits, PageError};
use crate::pool::{Pool, PoolError};

/// The number of this layout.
pub const FORMAT_VERSION: u16 = 1;

const MAGIC: &[u8; 4] = b"WRFD";
const HEADER_LEN: usize = 32;

/// Where a publisher stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The generation it copies or follows.
    pub generation: Generation,
    /// The last change that it has, once the copy is complete.
    pub position: u64,
    /// The next page of the full copy; the number of pages once the copy is complete.
    pub next_page: u32,
}

/// What a publisher asks for, as the query of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where it stands.
    pub cursor: Cursor,
    /// How long the answer may wait for a change, in milliseconds.
    pub wait_ms: u32,
    /// The most bytes of pages that it takes at once. At least one page is sent, whatever its size.
    pub max_bytes: u32,
}

/// A query that is not a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("feed request: `{field}` must be given once, as a decimal number")]
pub struct RequestError {
    /// The parameter that is missing, repeated, unknown or no number.
    pub field: String,
}

/// An answer's bytes, checked: the pages are whole, in order, and of the pool's generation and numbers.
#[derive(Clone, Debug)]
pub struct Answer<'a> {
    /// Where the publisher stands once it has stored this answer.
    pub cursor: Cursor,
    /// The pool, as it is stored.
    pub pool_bytes: &'a [u8],
    /// The pool.
    pub pool: Pool,
    /// The pages, each with its bytes as they are stored.
    pub pages: Vec<(Page<'a>, &'a [u8])>,
}

/// Why bytes are not an answer. Nothing of such an answer is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The bytes end early or go on too long.
    #[error("feed answer has the wrong length")]
    Length,
    /// Not an answer at all.
    #[error("feed answer does not begin with its magic bytes")]
    Magic,
    /// An answer of another layout.
    #[error("feed answer has format version {0}, not {FORMAT_VERSION}")]
    Version(u16),
    /// The pool in it is none.
    #[error("feed answer: {0}")]
    Pool(#[from] PoolError),
    /// A page in it is none.
    #[error("feed answer: {0}")]
    Page(#[from] PageError),
    /// A page, the pool and the cursor do not belong together.
    #[error("feed answer holds parts of different generations or page counts")]
    Mixed,
}

/// Builds an answer.
#[derive(Debug)]
pub struct AnswerWriter {
    bytes: Vec<u8>,
    pages: u32,
    page_bytes: usize,
}

// === impl Cursor ===

impl Cursor {
    /// Of a publisher that has nothing.
    pub const START: Cursor = Cursor { generation: Generation(0), position: 0, next_page: 0 };

    /// Whether the full copy is done, in an index of so many pages.
    pub fn is_complete(&self, page_bits: PageBits) -> bool {
        self.next_page >= page_bits.page_count()
    }
}

// === impl Request ===

impl Request {
    /// The request's path and query for a pool.
    pub fn path(&self, pool: &str) -> String {
        let Self { cursor: Cursor { generation, position, next_page }, wait_ms, max_bytes } = self;
        format!(
            "/v1/pools/{pool}/feed?generation={}&position={position}&page={next_page}&wait_ms={wait_ms}&max_bytes={max_bytes}",
            generation.0
        )
    }

    /// Reads the query part of [`Request::path`].
    ///
    /// # Errors
    ///
    /// A parameter that is missing, repeated, unknown or not a number in range; the error names it.
    pub fn parse_query(query: &str) -> Result<Self, RequestError> {
        const FIELDS: [&str; 5] = ["generation", "position", "page", "wait_ms", "max_bytes"];
        let mut values = [None; 5];
        for (name, value) in query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            let refused = || RequestError { field: name.to_owned() };
            let field = FIELDS.iter().position(|field| *field == name).ok_or_else(refused)?;
            let place = values.get_mut(field).filter(|place| place.is_none()).ok_or_else(refused)?;
            *place = Some(value.parse::<u64>().map_err(|_| refused())?);
        }
        let mut fields = FIELDS.iter().zip(values);
        let mut next = |limit: u64| {
            let (name, value) = fields.next().unwrap_or((&"generation", None));
            value.filter(|value| *value <= limit).ok_or_else(|| RequestError { field: (*name).to_owned() })
        };
        let small = u64::from(u32::MAX);
        let generation = Generation(next(u64::MAX)?);
        let position = next(u64::MAX)?;
        let next_page = next(small)? as u32;
        let cursor = Cursor { generation, position, next_page };
        Ok(Self { cursor, wait_ms: next(small)? as u32, max_bytes: next(small)? as u32 })
    }
}

// === impl Answer ===

impl<'a> Answer<'a> {
    /// Reads and checks an answer, every record of its pages included.
    ///
    /// # Errors
    ///
    /// Anything that an [`AnswerWriter`] over one index would not have written.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, AnswerError> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len()).ok_or(AnswerError::Length)? != MAGIC {
            return Err(AnswerError::Magic);
        }
        let version = reader.u16().ok_or(AnswerError::Length)?;
        if version != FORMAT_VERSION {
            return Err(AnswerError::Version(version));
        }
        Self::decode_body(&mut reader).ok_or(AnswerError::Length)?
    }

    /// `None`: the bytes end early or go on too long.
    fn decode_body(reader: &mut Reader<'a>) -> Option<Result<Self, AnswerError>> {
        reader.u16()?;
        let generation = Generation(reader.u64()?);
        let cursor = Cursor { generation, position: reader.u64()?, next_page: reader.u32()? };
        let count = reader.u32()?;
        let pool_bytes = reader.chunk()?;
        let mut pages = Vec::new();
        for _ in 0..count {
            pages.push(reader.chunk()?);
        }
        reader.is_empty().then(|| Self::check(cursor, pool_bytes, &pages))
    }

    fn check(cursor: Cursor, pool_bytes: &'a [u8], pages: &[&'a [u8]]) -> Result<Self, AnswerError> {
        let pool = Pool::decode(pool_bytes)?;
        let page_count = pool.page_bits.page_count();
        if pool.generation != cursor.generation || cursor.next_page > page_count {
            return Err(AnswerError::Mixed);
        }
        let checked = |bytes: &&'a [u8]| {
            let page = Page::parse(bytes)?;
            page.verify()?;
            let header = page.header();
            if header.generation != pool.generation || header.number >= page_count {
                return Err(AnswerError::Mixed);
            }
            Ok((page, *bytes))
        };
        let pages = pages.iter().map(checked).collect::<Result<_, _>>()?;
        Ok(Self { cursor, pool_bytes, pool, pages })
    }
}

// === impl AnswerWriter ===

impl AnswerWriter {
    /// An answer about a pool, without pages yet.
    pub fn new(pool: &Pool) -> Self {
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.resize(HEADER_LEN, 0);
        let mut writer = Self { bytes, pages: 0, page_bytes: 0 };
        writer.chunk(&pool.encode());
        writer
    }

    fn chunk(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(chunk);
    }

    /// Adds a page's bytes.
    pub fn page(&mut self, page: &[u8]) {
        self.chunk(page);
        self.pages += 1;
        self.page_bytes += page.len();
    }

    /// The bytes of the pages so far, to hold against [`Request::max_bytes`].
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The answer's bytes.
    pub fn finish(mut self, cursor: Cursor) -> Vec<u8> {
        let fields = [
            cursor.generation.0.to_le_bytes().as_slice(),
            &cursor.position.to_le_bytes(),
            &cursor.next_page.to_le_bytes(),
            &self.pages.to_le_bytes(),
        ]
        .concat();
        for (to, from) in self.bytes.iter_mut().skip(8).zip(fields) {
            *to = from;
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::SequenceHash;
    use crate::page::{PageHeader, PageWriter};

    const CURSOR: Cursor = Cursor { generation: Generation(5), position: 90, next_page: 4 };

    fn pool() -> Pool {
        Pool {
            generation: Generation(5),
            page_bits: PageBits::new(2).unwrap(),
            block_size: 16,
            base_models: vec![],
            namespaced: false,
            workers: vec![],
        }
    }

    fn page(number: u32, generation: u64) -> Vec<u8> {
        let mut writer = PageWriter::default();
        writer.record(SequenceHash(1), []);
        writer.finish(PageHeader { number, generation: Generation(generation), version: 9 })
    }

    fn answer(pages: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = AnswerWriter::new(&pool());
        pages.iter().for_each(|page| writer.page(page));
        writer.finish(CURSOR)
    }

    #[test]
    fn reads_what_it_wrote() {
        let pages = [page(3, 5), page(0, 5)];
        let bytes = answer(&pages);
        let answer = Answer::decode(&bytes).unwrap();
        assert_eq!((answer.cursor, answer.pool), (CURSOR, pool()));
        assert!(answer.cursor.is_complete(PageBits::new(2).unwrap()));
        assert_eq!(answer.pages.iter().map(|(_, bytes)| bytes.to_vec()).collect::<Vec<_>>(), pages);
    }

    #[test]
    fn bytes_cut_anywhere_or_one_too_many_are_an_error() {
        let mut bytes = answer(&[page(3, 5)]);
        for cut in 0..bytes.len() {
            assert!(Answer::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes.push(0);
        assert_eq!(Answer::decode(&bytes).unwrap_err(), AnswerError::Length);
    }

    #[test]
    fn refuses_a_page_of_another_generation_or_beyond_the_last() {
        assert_eq!(Answer::decode(&answer(&[page(0, 6)])).unwrap_err(), AnswerError::Mixed);
        assert_eq!(Answer::decode(&answer(&[page(4, 5)])).unwrap_err(), AnswerError::Mixed);
    }

    #[test]
    fn a_request_reads_back_from_its_path() {
        let request = Request { cursor: CURSOR, wait_ms: 10_000, max_bytes: 262_144 };
        let path = request.path("llama");
        let (path, query) = path.split_once('?').unwrap();
        assert_eq!(path, "/v1/pools/llama/feed");
        assert_eq!(Request::parse_query(query), Ok(request));
    }

    #[test]
    fn a_bad_query_names_its_parameter() {
        let refused = |query: &str| Request::parse_query(query).unwrap_err().field;
        assert_eq!(refused("generation=1&position=x&page=0&wait_ms=0&max_bytes=1"), "position");
        assert_eq!(refused("generation=1&position=1&page=0&wait_ms=0"), "max_bytes");
        assert_eq!(refused("generation=1&generation=1"), "generation");
        assert_eq!(refused("colour=1"), "colour");
        assert_eq!(refused("generation=1&position=1&page=4294967296&wait_ms=0&max_bytes=1"), "page");
    }
}
