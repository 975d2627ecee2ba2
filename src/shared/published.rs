//! The published pool: the one value that a reader starts from, and the last that a publisher writes.
//!
//! # Layout, version 1
//!
//! All numbers are little-endian.
//!
//! ```text
//! offset  size  field
//! 0       4     magic, the bytes "WRPB"
//! 4       2     format version, 1
//! 6       1     key set of the pages: 0 = a, 1 = b
//! 7       1     zero
//! 8       8     position in the feed up to which the pages are written
//! 16      8     when the collector was last heard, in microseconds since 1970
//! 24      ...   the pool, as the feed carries it
//! ```

use warmroute_routing::pool::{Pool, PoolError};

use super::KeySet;

const FORMAT_VERSION: u16 = 1;
const MAGIC: &[u8; 4] = b"WRPB";

/// A published pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published<'a> {
    /// Where its pages are.
    pub set: KeySet,
    /// The position in the feed up to which they are written.
    pub position: u64,
    /// When the collector was last heard, in microseconds since 1970.
    pub heard_at_us: u64,
    /// The pool, as the feed carries it. Not decoded: whoever has decoded the same bytes before need not do so again.
    pub pool: &'a [u8],
}

/// Why bytes are not a published pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedError {
    /// Cut, foreign, or of another layout.
    Layout,
    /// The pool in it is none.
    Pool(PoolError),
}

// === impl Published ===

impl<'a> Published<'a> {
    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let set = match self.set {
            KeySet::A => 0,
            KeySet::B => 1,
        };
        let mut out = Vec::with_capacity(24 + self.pool.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[set, 0]);
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.heard_at_us.to_le_bytes());
        out.extend_from_slice(self.pool);
        out
    }

    /// Reads the value.
    ///
    /// # Errors
    ///
    /// [`PublishedError::Layout`] if it is cut, foreign or of another layout.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, PublishedError> {
        Self::fields(bytes).ok_or(PublishedError::Layout)
    }

    fn fields(bytes: &'a [u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (version, rest) = rest.split_first_chunk::<2>()?;
        let ([set, _], rest) = rest.split_first_chunk::<2>()?;
        let (position, rest) = rest.split_first_chunk::<8>()?;
        let (heard_at, pool) = rest.split_first_chunk::<8>()?;
        if magic != MAGIC || u16::from_le_bytes(*version) != FORMAT_VERSION {
            return None;
        }
        let set = match set {
            0 => KeySet::A,
            1 => KeySet::B,
            _ => return None,
        };
        let (position, heard_at_us) = (u64::from_le_bytes(*position), u64::from_le_bytes(*heard_at));
        Some(Self { set, position, heard_at_us, pool })
    }

    /// Reads the pool in it.
    ///
    /// # Errors
    ///
    /// The pool's own.
    pub fn decode_pool(&self) -> Result<Pool, PublishedError> {
        Pool::decode(self.pool).map_err(PublishedError::Pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_wrote_and_nothing_that_is_cut() {
        let published =
            Published { set: KeySet::B, position: 7, heard_at_us: 1_700_000_000_000_000, pool: b"pool" };
        let bytes = published.encode();
        assert_eq!(Published::decode(&bytes), Ok(published));
        for cut in 0..24 {
            assert_eq!(Published::decode(&bytes[..cut]), Err(PublishedError::Layout), "cut at {cut}");
        }
    }

    #[test]
    fn refuses_another_layout() {
        let bytes = Published { set: KeySet::A, position: 0, heard_at_us: 0, pool: b"" }.encode();
        for (at, value) in [(0, b'X'), (4, 2), (6, 2)] {
            let mut foreign = bytes.clone();
            foreign[at] = value;
            assert_eq!(Published::decode(&foreign), Err(PublishedError::Layout));
        }
    }
}
