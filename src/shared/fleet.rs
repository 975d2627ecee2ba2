//! What other proxies have in flight, as the collector last told.
//!
//! # Layout, version 1
//!
//! All numbers are little-endian.
//!
//! ```text
//! offset  size  field
//! 0       4     magic, the bytes "WRFL"
//! 4       2     format version, 1
//! 6       2     zero
//! 8       8     when it was told, in microseconds since 1970
//! 16      ...   the collector's answer (see `warmroute_routing::loads`)
//! ```

const FORMAT_VERSION: u16 = 1;
const MAGIC: &[u8; 4] = b"WRFL";

/// What the collector last told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardFleet<'a> {
    /// When, in microseconds since 1970.
    pub heard_at_us: u64,
    /// Its answer.
    pub answer: &'a [u8],
}

// === impl HeardFleet ===

impl<'a> HeardFleet<'a> {
    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.answer.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.heard_at_us.to_le_bytes());
        out.extend_from_slice(self.answer);
        out
    }

    /// Reads the value. None: it is cut, foreign or of another layout.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (version, rest) = rest.split_first_chunk::<2>()?;
        let (_, rest) = rest.split_first_chunk::<2>()?;
        let (heard_at, answer) = rest.split_first_chunk::<8>()?;
        let is_ours = magic == MAGIC && u16::from_le_bytes(*version) == FORMAT_VERSION;
        is_ours.then_some(Self { heard_at_us: u64::from_le_bytes(*heard_at), answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_wrote_and_nothing_that_is_cut_or_foreign() {
        let heard = HeardFleet { heard_at_us: 1_700_000_000_000_000, answer: b"answer" };
        let mut bytes = heard.encode();
        assert_eq!(HeardFleet::decode(&bytes), Some(heard));
        for cut in 0..16 {
            assert_eq!(HeardFleet::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        bytes[4] = 2;
        assert_eq!(HeardFleet::decode(&bytes), None);
    }
}
