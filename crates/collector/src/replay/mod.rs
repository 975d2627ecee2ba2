//! `warmroute-collector replay`: feeds recorded frames through the real decoding and the real index.
//!
//! A recording is a file of JSON lines. Lines whose `kind` begins with `event` hold the frames of one message; lines of
//! kind `query` are answered in their place, by the lookup that the filter uses; all others are passed over. So a
//! recording with the engine's own count of cached tokens shows whether the index tells the truth.

mod answer;
mod line;
mod session;

use std::io::{self, BufRead, Write};

use serde::Serialize;
use warmroute_wire::Engine;

pub use self::answer::{Answer, WorkerBlocks};
use self::line::Line;
use self::session::Session;

/// How to replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Tokens in a block. Not given: learnt from each worker's first store that tells.
    pub block_size: Option<u32>,
    /// What the recorded workers ran.
    pub engine: Engine,
}

/// What a recording held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Messages.
    pub frames: u64,
    /// Events in them, of every type.
    pub events: u64,
    /// Messages that are none: frames that lack a part, or a payload that is no batch.
    pub undecodable_frames: u64,
    /// Events that could not be read, or that the index refused.
    pub bad_events: u64,
    /// Workers that began anew: their sequence numbers went back.
    pub resets: u64,
    /// Batches of a release that cannot be indexed.
    #[serde(skip_serializing_if = "is_zero")]
    pub unsupported: u64,
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A line is no JSON object, or a field of it has another type.
    #[error("line {number}: {source}")]
    Line {
        /// The line's number, from 1.
        number: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The recording could not be read or an answer not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Replays a recording; answers go to `output`, a JSON line each.
///
/// # Errors
///
/// A line that is no recording's, or a failed read or write.
pub fn replay(input: impl BufRead, mut output: impl Write, options: Options) -> Result<Summary, ReplayError> {
    let mut session = Session::new(options);
    for (i, text) in input.lines().enumerate() {
        let text = text?;
        if text.trim().is_empty() {
            continue;
        }
        let line = Line::parse(&text).map_err(|source| ReplayError::Line { number: i + 1, source })?;
        match line {
            Line::Frames(frames) => session.feed(&frames),
            Line::Query(query) => {
                let answer = serde_json::to_string(&session.answer(query)).map_err(io::Error::from)?;
                writeln!(output, "{answer}")?;
            }
            Line::Other => {}
        }
    }
    output.flush()?;
    Ok(session.summary())
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
