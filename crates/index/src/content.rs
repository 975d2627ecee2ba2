//! What is in a block, whatever came before it.

use std::borrow::Cow;

use smallvec::SmallVec;
use warmroute_routing::hash::{LocalHash, Namespace};

/// The content of one block: the tokens, or only their hash if a feeder tells no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    Tokens { tokens: Cow<'a, [u32]>, media: Cow<'a, [u64]> },
    Local(LocalHash),
}

// === impl Content ===

impl<'a> Content<'a> {
    pub(crate) fn tokens(tokens: &'a [u32], media: &'a [u64]) -> Self {
        Content::Tokens { tokens: Cow::Borrowed(tokens), media: Cow::Borrowed(media) }
    }

    /// The block's hash. A hash that was told stands: its namespace is in it already.
    #[inline]
    pub(crate) fn local(&self, namespace: Namespace) -> LocalHash {
        match self {
            Content::Local(local) => *local,
            Content::Tokens { tokens, media } if media.is_empty() => LocalHash::of_block(namespace, tokens),
            Content::Tokens { tokens, media } => {
                let mut media = SmallVec::<[u64; 8]>::from_slice(media);
                LocalHash::of_block_with_media(namespace, tokens, &mut media)
            }
        }
    }

    /// The content to keep, with its media in the order in which they are hashed: equal content is equal then.
    pub(crate) fn into_owned(self) -> Content<'static> {
        match self {
            Content::Local(local) => Content::Local(local),
            Content::Tokens { tokens, media } => {
                let mut media = media.into_owned();
                media.sort_unstable();
                Content::Tokens { tokens: Cow::Owned(tokens.into_owned()), media: Cow::Owned(media) }
            }
        }
    }
}
