//! Prompt blocks: what the collector answers a proxy that has sent it the body of a text or chat request.
//!
//! The collector renders and tokenizes the prompt as the pool's engine does, and hashes it in the request's own namespace
//! (its adapter and salt), so that the hashes are what a lookup takes. It answers with the hashes alone, eight bytes a
//! block; the token IDs follow where they were asked for, for an engine that takes them in place of the text.
//!
//! # Answer, version 1
//!
//! All numbers are little-endian.
//!
//! ```text
//! offset  size  field
//! 0       4     magic, the bytes "WRPB"
//! 4       2     format version, 1
//! 6       1     extent: 0 = the whole prompt, 1 = only what stands before an image, audio or an unknown part
//! 7       1     flags: bit 0 = the token IDs follow
//! 8       4     block size, in tokens
//! 12      4     number of tokens
//! 16      8*n   sequence hashes of the full blocks, first block first; n = tokens / block size
//! ...     4*t   token IDs, one for each token, if bit 0 of the flags is set
//! ```
//!
//! The numbers say how long an answer is: one byte more or less is refused. A prompt that could not be tokenized has no
//! such answer, but a status of HTTP that is not 200.

use crate::bytes::Reader;
use crate::hash::SequenceHash;

/// The number of this layout.
pub const FORMAT_VERSION: u16 = 1;

/// What a proxy names in `accept` to get these bytes rather than JSON.
pub const MEDIA_TYPE: &str = "application/x-warmroute-prompt-blocks";

const MAGIC: &[u8; 4] = b"WRPB";
const HEADER_LEN: usize = 16;
const HAS_TOKENS: u8 = 1;

/// How much of a prompt is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// What stands before an image, audio or an unknown part. The prompt is longer; how long is not known.
    Prefix,
}

/// A prompt, as blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptBlocks {
    /// How much of the prompt this is.
    pub extent: Extent,
    /// Tokens in a block; never 0.
    pub block_size: u32,
    /// The tokens, those of a block that is not full included.
    pub token_count: u32,
    /// The full blocks.
    pub hashes: Vec<SequenceHash>,
    /// The token IDs, where they were asked for.
    pub tokens: Option<Vec<u32>>,
}

/// Why bytes are no prompt blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptBlocksError {
    /// The bytes end early or go on too long.
    #[error("prompt blocks have the wrong length")]
    Length,
    /// Something else altogether.
    #[error("prompt blocks do not begin with their magic bytes")]
    Magic,
    /// Another layout.
    #[error("prompt blocks have format version {0}, not {FORMAT_VERSION}")]
    Version(u16),
    /// An extent, flag or block size that does not exist.
    #[error("prompt blocks have a field that cannot be")]
    Field,
}

// === impl PromptBlocks ===

impl PromptBlocks {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let Self { extent, block_size, token_count, hashes, tokens } = self;
        let mut bytes = Vec::with_capacity(
            HEADER_LEN + hashes.len() * 8 + tokens.as_ref().map_or(0, |tokens| tokens.len() * 4),
        );
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.push(match extent {
            Extent::Whole => 0,
            Extent::Prefix => 1,
        });
        bytes.push(if tokens.is_some() { HAS_TOKENS } else { 0 });
        bytes.extend_from_slice(&block_size.to_le_bytes());
        bytes.extend_from_slice(&token_count.to_le_bytes());
        for hash in hashes {
            bytes.extend_from_slice(&hash.0.to_le_bytes());
        }
        for token in tokens.iter().flatten() {
            bytes.extend_from_slice(&token.to_le_bytes());
        }
        bytes
    }

    /// Reads the bytes. Nothing is reserved for what the header promises before the length of the bytes bears it out.
    ///
    /// # Errors
    ///
    /// The bytes are not of this format and version, or their length is not what the header says.
    pub fn decode(bytes: &[u8]) -> Result<Self, PromptBlocksError> {
        let length = || PromptBlocksError::Length;
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len()).ok_or_else(length)? != MAGIC {
            return Err(PromptBlocksError::Magic);
        }
        let version = reader.u16().ok_or_else(length)?;
        if version != FORMAT_VERSION {
            return Err(PromptBlocksError::Version(version));
        }
        let extent = match reader.u8().ok_or_else(length)? {
            0 => Extent::Whole,
            1 => Extent::Prefix,
            _ => return Err(PromptBlocksError::Field),
        };
        let has_tokens = match reader.u8().ok_or_else(length)? {
            0 => false,
            HAS_TOKENS => true,
            _ => return Err(PromptBlocksError::Field),
        };
        let block_size = reader.u32().ok_or_else(length)?;
        let token_count = reader.u32().ok_or_else(length)?;
        let blocks = token_count.checked_div(block_size).ok_or(PromptBlocksError::Field)?;
        let hashes = words::<8>(&mut reader, blocks).ok_or_else(length)?;
        let tokens = if has_tokens {
            let tokens = words::<4>(&mut reader, token_count).ok_or_else(length)?;
            Some(tokens.iter().map(|token| u32::from_le_bytes(*token)).collect())
        } else {
            None
        };
        if !reader.is_empty() {
            return Err(PromptBlocksError::Length);
        }
        let hashes = hashes.iter().map(|hash| SequenceHash(u64::from_le_bytes(*hash))).collect();
        Ok(Self { extent, block_size, token_count, hashes, tokens })
    }
}

/// The next `count` words of `N` bytes.
fn words<'a, const N: usize>(reader: &mut Reader<'a>, count: u32) -> Option<&'a [[u8; N]]> {
    let bytes = reader.take(usize::try_from(count).ok()?.checked_mul(N)?)?;
    Some(bytes.as_chunks::<N>().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(tokens: Option<Vec<u32>>) -> PromptBlocks {
        PromptBlocks {
            extent: Extent::Prefix,
            block_size: 2,
            token_count: 5,
            hashes: vec![SequenceHash(1), SequenceHash(u64::MAX)],
            tokens,
        }
    }

    #[test]
    fn reads_what_it_wrote() {
        for blocks in [blocks(None), blocks(Some(vec![7, 8, 9, 10, u32::MAX]))] {
            assert_eq!(PromptBlocks::decode(&blocks.encode()), Ok(blocks));
        }
        let empty = PromptBlocks {
            extent: Extent::Whole,
            block_size: 16,
            token_count: 0,
            hashes: vec![],
            tokens: Some(vec![]),
        };
        assert_eq!(PromptBlocks::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn the_layout_is_as_documented() {
        let bytes = blocks(Some(vec![7, 8, 9, 10, 11])).encode();
        assert_eq!(bytes[..16], *b"WRPB\x01\x00\x01\x01\x02\x00\x00\x00\x05\x00\x00\x00");
        assert_eq!(bytes[16..24], 1u64.to_le_bytes());
        assert_eq!((bytes[32], bytes.len()), (7, 16 + 2 * 8 + 5 * 4));
    }

    #[test]
    fn bytes_cut_anywhere_or_one_too_many_are_an_error() {
        for blocks in [blocks(None), blocks(Some(vec![7, 8, 9, 10, 11]))] {
            let mut bytes = blocks.encode();
            for cut in 0..bytes.len() {
                assert_eq!(
                    PromptBlocks::decode(&bytes[..cut]),
                    Err(PromptBlocksError::Length),
                    "cut at {cut}"
                );
            }
            bytes.push(0);
            assert_eq!(PromptBlocks::decode(&bytes), Err(PromptBlocksError::Length));
        }
    }

    #[test]
    fn fields_that_cannot_be_are_refused() {
        let with = |offset: usize, byte: u8| {
            let mut bytes = blocks(None).encode();
            bytes[offset] = byte;
            PromptBlocks::decode(&bytes)
        };
        assert_eq!(with(0, b'X'), Err(PromptBlocksError::Magic));
        assert_eq!(with(4, 2), Err(PromptBlocksError::Version(2)));
        assert_eq!(with(6, 2), Err(PromptBlocksError::Field));
        assert_eq!(with(7, 2), Err(PromptBlocksError::Field));
        assert_eq!(with(8, 0), Err(PromptBlocksError::Field), "blocks of no tokens");
        assert_eq!(with(15, 0xFF), Err(PromptBlocksError::Length), "four thousand million tokens promised");
    }
}
