//! From text to token IDs, piece by piece.

mod cache;
mod cuts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tokenizers::{AddedToken, Tokenizer};

use self::cache::PieceCache;
use self::cuts::Cuts;
use crate::error::PromptError;

/// Pieces shorter than this are tokenized sooner than looked up.
const SHORT_PIECE: usize = 8;

/// A tokenizer that remembers what it has seen.
#[derive(Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    cuts: Cuts,
    cache: PieceCache,
    /// What stands before and after a text that gets its special tokens.
    around: (Vec<u32>, Vec<u32>),
    counts: Counts,
}

/// How much was looked up, and how much of it was there.
#[derive(Debug, Default)]
struct Counts {
    tokens: AtomicU64,
    cached_tokens: AtomicU64,
}

/// Why a tokenizer cannot be used, or a text has no tokens.
#[derive(Debug, thiserror::Error)]
#[error("tokenizer: {0}")]
pub struct TokenizerError(String);

// === impl TextTokenizer ===

impl TextTokenizer {
    /// Reads `tokenizer.json`; `config` is `tokenizer_config.json`, whose added tokens count as well. `cache_bytes` bounds
    /// what is remembered.
    ///
    /// # Errors
    ///
    /// It is no tokenizer.
    pub fn new(tokenizer_json: &[u8], config: &Value, cache_bytes: usize) -> Result<Self, TokenizerError> {
        let mut tokenizer = Tokenizer::from_bytes(tokenizer_json).map_err(|error| failed(&*error))?;
        // As transformers does when nobody asks for either.
        tokenizer.with_truncation(None).map_err(|error| failed(&*error))?.with_padding(None);
        let missing: Vec<_> = configured_tokens(config)
            .into_iter()
            .filter(|token| !tokenizer.get_added_vocabulary().get_vocab().contains_key(&token.content))
            .collect();
        tokenizer.add_tokens(missing).map_err(|error| failed(&*error))?;
        let mut as_it_is: Value =
            serde_json::from_slice(tokenizer_json).map_err(|error| TokenizerError(error.to_string()))?;
        let added = serde_json::to_value(tokenizer.get_added_vocabulary());
        if let (Some(fields), Ok(added)) = (as_it_is.as_object_mut(), added) {
            fields.insert("added_tokens".to_owned(), added);
        }
        let around = around(&tokenizer)?;
        Ok(Self {
            cuts: Cuts::new(&as_it_is),
            cache: PieceCache::new(cache_bytes),
            around,
            counts: Counts::default(),
            tokenizer,
        })
    }

    /// The tokens of a text, from the pieces that are known and those that are new. The same as
    /// [`TextTokenizer::encode_whole`].
    ///
    /// # Errors
    ///
    /// The model has no token for some of it, or `wanted` has said that nobody waits for it any more: it is asked before each
    /// piece that is new.
    pub fn encode(
        &self,
        text: &str,
        special_tokens: bool,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<u32>, PromptError> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        let (before, after) = &self.around;
        if special_tokens {
            tokens.extend(before);
        }
        self.pieces(text, &mut tokens, wanted)?;
        if special_tokens {
            tokens.extend(after);
        }
        Ok(tokens)
    }

    /// The tokens of a text's beginning that are certain, whatever comes after it.
    ///
    /// # Errors
    ///
    /// As [`TextTokenizer::encode`].
    pub fn encode_prefix(
        &self,
        text: &str,
        special_tokens: bool,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<u32>, PromptError> {
        let certain = text.get(..self.cuts.last_certain(text)).unwrap_or_default();
        let mut tokens = if special_tokens { self.around.0.clone() } else { Vec::new() };
        self.pieces(certain, &mut tokens, wanted)?;
        Ok(tokens)
    }

    /// The tokens of a text, tokenized in one go and remembered nowhere.
    ///
    /// # Errors
    ///
    /// The model has no token for some of it.
    pub fn encode_whole(&self, text: &str, special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self.tokenizer.encode_fast(text, special_tokens).map_err(|error| failed(&*error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The tokens made so far, and those of them that were remembered.
    pub fn counts(&self) -> (u64, u64) {
        let Counts { tokens, cached_tokens } = &self.counts;
        (tokens.load(Ordering::Relaxed), cached_tokens.load(Ordering::Relaxed))
    }

    fn pieces(
        &self,
        text: &str,
        tokens: &mut Vec<u32>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(), PromptError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        let mut done = 0;
        for cut in self.cuts.of(text) {
            let Some((piece, after)) = rest.split_at_checked(cut - done) else { continue };
            pieces.push(piece);
            (rest, done) = (after, cut);
        }
        pieces.push(rest);
        pieces.retain(|piece| !piece.is_empty());
        let known = self.cache.get(pieces.iter().copied());
        let (before, mut cached) = (tokens.len(), 0);
        for (piece, known) in pieces.into_iter().zip(known) {
            match known {
                Some(known) => {
                    cached += known.len();
                    tokens.extend_from_slice(&known);
                }
                // What is made by now is remembered: who asks again does not begin anew.
                None if !wanted() => return Err(PromptError::Abandoned),
                None => {
                    let made: Arc<[u32]> = self.encode_whole(piece, false)?.into();
                    if piece.len() >= SHORT_PIECE {
                        self.cache.insert(piece, &made);
                    }
                    tokens.extend_from_slice(&made);
                }
            }
        }
        self.counts.tokens.fetch_add((tokens.len() - before) as u64, Ordering::Relaxed);
        self.counts.cached_tokens.fetch_add(cached as u64, Ordering::Relaxed);
        Ok(())
    }
}

fn failed(error: &(dyn std::error::Error + Send + Sync)) -> TokenizerError {
    TokenizerError(error.to_string())
}

/// What the tokenizer puts before and after a text.
fn around(tokenizer: &Tokenizer) -> Result<(Vec<u32>, Vec<u32>), TokenizerError> {
    const PROBE: &str = "probe";
    let encode = |special| tokenizer.encode_fast(PROBE, special).map_err(|error| failed(&*error));
    let (with, without) = (encode(true)?, encode(false)?);
    let (with, without) = (with.get_ids(), without.get_ids());
    let place = with.windows(without.len().max(1)).position(|window| window == without);
    let place =
        place.ok_or_else(|| TokenizerError("its special tokens are not around the text".to_owned()))?;
    let (before, rest) = with.split_at_checked(place).unwrap_or_default();
    Ok((before.to_vec(), rest.get(without.len()..).unwrap_or_default().to_vec()))
}

/// The added tokens of `tokenizer_config.json`, by their number, then its named special tokens.
fn configured_tokens(config: &Value) -> Vec<AddedToken> {
    let mut numbered: Vec<(u64, &Value)> = config
        .get("added_tokens_decoder")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(id, token)| Some((id.parse().ok()?, token)))
        .collect();
    numbered.sort_by_key(|(id, _)| *id);
    let decoded = numbered.into_iter().filter_map(|(_, token)| added_token(token, false));
    let named =
        config.as_object().into_iter().flatten().filter(|(name, _)| crate::model::is_special_token(name));
    let more = config.get("additional_special_tokens").and_then(Value::as_array).into_iter().flatten();
    decoded
        .chain(named.map(|(_, token)| token).chain(more).filter_map(|token| added_token(token, true)))
        .collect()
}

fn added_token(token: &Value, is_special: bool) -> Option<AddedToken> {
    let flag = |name: &str| token.get(name).and_then(Value::as_bool);
    let content = token.as_str().or_else(|| token.get("content")?.as_str())?;
    let special = flag("special").unwrap_or(is_special);
    Some(
        AddedToken::from(content, special)
            .lstrip(flag("lstrip").unwrap_or(false))
            .rstrip(flag("rstrip").unwrap_or(false))
            .single_word(flag("single_word").unwrap_or(false))
            .normalized(flag("normalized").unwrap_or(!special)),
    )
}
