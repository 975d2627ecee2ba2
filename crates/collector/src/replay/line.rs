//! The lines of a recording.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

/// A line that matters here.
#[derive(Debug)]
pub(super) enum Line {
    Frames(Frames),
    Query(Query),
    Other,
}

/// One message of one rank.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) worker: String,
    pub(super) rank: u32,
    /// `None`: what is recorded is no base64.
    pub(super) frames: Option<Vec<Vec<u8>>>,
}

/// A prompt whose cached blocks are asked for.
#[derive(Debug, Deserialize)]
pub(super) struct Query {
    #[serde(default)]
    pub(super) n: Value,
    pub(super) worker: Option<String>,
    pub(super) tokens: Vec<u32>,
    pub(super) lora: Option<String>,
    pub(super) salt: Option<String>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

#[derive(Deserialize)]
struct RawFrames {
    worker: Option<String>,
    run: Option<String>,
    frames_b64: Vec<String>,
}

// === impl Line ===

impl Line {
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let kind = serde_json::from_str::<Kind>(text)?.kind.unwrap_or_default();
        if kind == "query" {
            return serde_json::from_str(text).map(Self::Query);
        }
        match kind.strip_prefix("event") {
            Some(suffix) => Frames::parse(text, suffix).map(Self::Frames),
            None => Ok(Self::Other),
        }
    }
}

// === impl Frames ===

impl Frames {
    /// `suffix` is the kind's after `event`: `_rank1` is rank 1.
    fn parse(text: &str, suffix: &str) -> Result<Self, serde_json::Error> {
        let raw: RawFrames = serde_json::from_str(text)?;
        Ok(Self {
            worker: raw.worker.or(raw.run).unwrap_or_default(),
            rank: suffix.strip_prefix("_rank").and_then(|rank| rank.parse().ok()).unwrap_or_default(),
            frames: raw.frames_b64.iter().map(|frame| STANDARD.decode(frame).ok()).collect(),
        })
    }
}
