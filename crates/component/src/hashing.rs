//! Tokens in, hashes out.

use warmroute_routing::hash::{LocalHash, MAX_BLOCK_SIZE, SequenceHash, eagle_local_hashes};

use crate::bindings::exports::warmroute::routing::hashing::{
    Extras, Guest, HashError, Hashes, Namespace, Tokens,
};
use crate::{Component, convert, tokens};

impl Guest for Component {
    fn hash_tokens(
        tokens: Tokens,
        block_size: u32,
        namespace: Namespace,
        extras: Option<Extras>,
    ) -> Result<Hashes, HashError> {
        if !(1..=MAX_BLOCK_SIZE).contains(&block_size) {
            return Err(HashError::BlockSize);
        }
        let ids = tokens::ids(tokens).map_err(HashError::Tokens)?;
        let namespace = convert::namespace(&namespace);
        let Extras { mut media, eagle } = extras.unwrap_or(Extras { media: Vec::new(), eagle: false });
        let blocks = ids.chunks_exact(block_size as usize);
        if !media.is_empty() && (eagle || media.len() != blocks.len()) {
            return Err(HashError::Media(u32::try_from(media.len()).unwrap_or(u32::MAX)));
        }
        let locals: Vec<LocalHash> = if eagle {
            eagle_local_hashes(&ids, block_size, namespace)
        } else if media.is_empty() {
            blocks.map(|block| LocalHash::of_block(namespace, block)).collect()
        } else {
            let with_media = blocks.zip(&mut media);
            with_media.map(|(block, media)| LocalHash::of_block_with_media(namespace, block, media)).collect()
        };
        let sequences = SequenceHash::chain(locals.iter().copied());
        Ok(Hashes {
            blocks: locals.iter().map(|hash| hash.0).collect(),
            sequences: sequences.iter().map(|hash| hash.0).collect(),
        })
    }
}
