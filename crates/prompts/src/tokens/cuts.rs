//! Where a text may be cut so that the tokens of the pieces are the tokens of the text.
//!
//! A tokenizer first looks for its added tokens (`<|im_start|>` and the like) and then works on the text between two of
//! them by itself: normalizer, pre-tokenizer and model never see across one. So the text may be cut **where an added token
//! begins**, provided that
//!
//! * what stands around the token does not matter to whether it is found: it takes no white space before it (`lstrip`), no
//!   token asks to be a whole word (`single_word`), and none that takes white space after it (`rstrip`) can reach into one
//!   that begins with some; and
//! * nothing in the pipeline asks where in the text it stands (SentencePiece's mark before the first word does).
//!
//! Tokens that are looked for after normalization count only where there is no normalizer.
//!
//! Text without such tokens may be cut **after a line's end**, where the pre-tokenizer is one of those listed below, whose
//! patterns never match across one: each takes the line breaks after punctuation or white space to the last of them and
//! begins anew with what follows. Such cuts are made at [`LONG_PIECE`] bytes or more, so that a long text is tokenized again
//! from its last few kilobytes on, not whole.
//!
//! Cuts depend on nothing but the text before them and a few bytes after: a text that goes on is cut at the same places.

use daachorse::{DoubleArrayAhoCorasick, DoubleArrayAhoCorasickBuilder, MatchKind};
use serde_json::Value;

/// Pieces between line ends are at least so long, in bytes.
const LONG_PIECE: usize = 2048;

/// The patterns of pre-tokenizers that end a match at a line's end: those of Llama 3, Qwen, o200k (gpt-oss) and DeepSeek.
const LINE_PATTERNS: [&str; 5] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    // DeepSeek's patterns before that one: each matches one kind of character that is no line break.
    r"\p{N}{1,3}",
];
const CJK_PATTERN: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";

/// Steps that look at one piece of text at a time, wherever it stands.
const LOCAL_STEPS: [&str; 8] = [
    "ByteLevel",
    "Split",
    "Digits",
    "Punctuation",
    "Whitespace",
    "WhitespaceSplit",
    "BertPreTokenizer",
    "CharDelimiterSplit",
];
/// Normalizers that are as local, those that put something before each piece included.
const LOCAL_NORMALIZERS: [&str; 10] =
    ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Replace", "Prepend", "Strip", "StripAccents", "ByteLevel"];

/// Where texts may be cut for one tokenizer.
#[derive(Default)]
pub(super) struct Cuts {
    /// Added tokens that are looked for in the text as it is.
    raw: Option<Finder>,
    /// Added tokens that are looked for between those, after normalization.
    normalized: Option<Finder>,
    after_lines: bool,
}

struct Finder {
    tokens: DoubleArrayAhoCorasick<u32>,
    /// Whether the text may be cut before each token.
    cut_before: Vec<bool>,
}

// === impl Cuts ===

impl Cuts {
    /// Reads a `tokenizer.json`. Where anything in it is not known to be safe, there are no cuts.
    pub(super) fn new(tokenizer: &Value) -> Self {
        let step = |name: &str| tokenizer.get(name).filter(|step| !step.is_null());
        let (normalizer, pre_tokenizer) = (step("normalizer"), step("pre_tokenizer"));
        let is_local = |step: Option<&Value>, known: &[&str]| {
            step.is_none_or(|step| steps(step).iter().all(|step| known.contains(&kind(step))))
        };
        let added: Vec<&Value> =
            tokenizer.get("added_tokens").and_then(Value::as_array).into_iter().flatten().collect();
        if !is_local(normalizer, &LOCAL_NORMALIZERS)
            || !is_local(pre_tokenizer, &LOCAL_STEPS)
            || added.iter().any(|token| flag(token, "single_word"))
            || added.iter().any(|token| flag(token, "rstrip")) && added.iter().any(|token| is_blank(token))
        {
            return Self::default();
        }
        let of = |normalized: bool| {
            added.iter().copied().filter(move |token| flag(token, "normalized") == normalized)
        };
        let is_plain = normalizer.is_none_or(|step| steps(step).is_empty());
        Self {
            raw: Finder::new(of(false)),
            normalized: if is_plain { Finder::new(of(true)) } else { None },
            after_lines: normalizer.is_none_or(|step| steps(step).iter().all(|step| kind(step) == "NFC"))
                && pre_tokenizer.is_some_and(splits_after_lines),
        }
    }

    /// The places where `text` may be cut, ascending, its start and end left out.
    pub(super) fn of(&self, text: &str) -> Vec<usize> {
        let mut cuts = Vec::new();
        let mut gap = 0;
        for found in self.raw.iter().flat_map(|finder| finder.matches(text)) {
            self.within_gap(text, gap, found.start, &mut cuts);
            if found.cut_before {
                cuts.push(found.start);
            }
            gap = found.end;
        }
        self.within_gap(text, gap, text.len(), &mut cuts);
        cuts.retain(|cut| *cut > 0);
        if self.after_lines {
            cuts = with_lines(text, &cuts);
        }
        cuts
    }

    fn within_gap(&self, text: &str, start: usize, end: usize, cuts: &mut Vec<usize>) {
        let (Some(finder), Some(gap)) = (&self.normalized, text.get(start..end)) else { return };
        cuts.extend(finder.matches(gap).filter(|found| found.cut_before).map(|found| start + found.start));
    }

    /// The last place at which an added token begins: what stands before it has its tokens, whatever comes after `text`.
    /// Nothing at all is certain where there is none.
    pub(super) fn last_certain(&self, text: &str) -> usize {
        self.of(text).last().copied().unwrap_or(0)
    }
}

impl std::fmt::Debug for Cuts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuts").field("after_lines", &self.after_lines).finish_non_exhaustive()
    }
}

struct Found {
    start: usize,
    end: usize,
    cut_before: bool,
}

// === impl Finder ===

impl Finder {
    fn new<'a>(tokens: impl Iterator<Item = &'a Value>) -> Option<Self> {
        let (mut patterns, mut cut_before) = (Vec::new(), Vec::new());
        for token in tokens {
            let content =
                token.get("content").and_then(Value::as_str).filter(|content| !content.is_empty())?;
            patterns.push((content, cut_before.len() as u32));
            cut_before.push(!flag(token, "lstrip"));
        }
        let tokens = DoubleArrayAhoCorasickBuilder::new()
            .match_kind(MatchKind::LeftmostLongest)
            .build_with_values(patterns)
            .ok()?;
        Some(Self { tokens, cut_before })
    }

    /// The added tokens in a text, by the rule of the tokenizer itself: the leftmost, of those the longest.
    fn matches<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Found> + 't {
        self.tokens.leftmost_find_iter(text).map(|found| Found {
            start: found.start(),
            end: found.end(),
            cut_before: self.cut_before.get(found.value() as usize).copied().unwrap_or(false),
        })
    }
}

fn with_lines(text: &str, cuts: &[usize]) -> Vec<usize> {
    let mut all = Vec::with_capacity(cuts.len());
    let mut start = 0;
    for end in cuts.iter().copied().chain([text.len()]) {
        while end - start > LONG_PIECE {
            let piece = text.as_bytes().get(start..end).unwrap_or_default();
            let Some(cut) = line_end(piece) else { break };
            start += cut;
            all.push(start);
        }
        start = end;
        all.push(end);
    }
    all.pop();
    all
}

/// Behind the first line that ends at or after [`LONG_PIECE`] bytes and is followed by a character that no pattern takes
/// together with a line break: one that ASCII can print, but no slash (gpt-oss takes slashes after punctuation).
fn line_end(piece: &[u8]) -> Option<usize> {
    let follows = |next: &u8| next.is_ascii_graphic() && *next != b'/';
    let pairs = piece.windows(2).enumerate().skip(LONG_PIECE - 1);
    pairs.filter(|(_, pair)| matches!(pair, [b'\n', next] if follows(next))).map(|(i, _)| i + 1).next()
}

fn kind(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or("")
}

/// Whether a token begins with white space, so that one that takes the white space after it may reach into it.
fn is_blank(token: &Value) -> bool {
    token
        .get("content")
        .and_then(Value::as_str)
        .is_some_and(|content| content.starts_with(char::is_whitespace))
}

fn flag(token: &Value, name: &str) -> bool {
    token.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// A step, or the steps of a sequence.
fn steps(step: &Value) -> Vec<&Value> {
    if kind(step) != "Sequence" {
        return vec![step];
    }
    let inner = ["pretokenizers", "normalizers"].iter().find_map(|name| step.get(*name)?.as_array());
    inner.into_iter().flatten().flat_map(steps).collect()
}

/// Splits by known patterns, then bytes, with nothing put before a piece.
fn splits_after_lines(pre_tokenizer: &Value) -> bool {
    let steps = steps(pre_tokenizer);
    let Some((last, splits)) = steps.split_last() else { return false };
    let is_known = |step: &&Value| {
        let pattern = step.pointer("/pattern/Regex").and_then(Value::as_str).unwrap_or("");
        kind(step) == "Split"
            && step.get("behavior").and_then(Value::as_str) == Some("Isolated")
            && !flag(step, "invert")
            && (LINE_PATTERNS.contains(&pattern) || pattern == CJK_PATTERN)
    };
    // The last split is one of the full patterns: the others leave white space whole.
    let is_full = |step: &&Value| {
        let pattern = step.pointer("/pattern/Regex").and_then(Value::as_str).unwrap_or("");
        LINE_PATTERNS.iter().take(4).any(|full| *full == pattern)
    };
    kind(last) == "ByteLevel"
        && !flag(last, "add_prefix_space")
        && last.get("use_regex").and_then(Value::as_bool) == Some(false)
        && splits.iter().all(is_known)
        && splits.last().is_some_and(is_full)
}
