//! An answer, taken apart into numbered events.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::KIND;
use crate::batch::{BadEvent, PayloadError};

/// An event, still encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number.
    pub id: u64,
    /// Whose it is: the attention-data-parallel rank, 0 where there is one only.
    pub rank: u16,
    /// Its JSON.
    pub event: Bytes,
}

/// What is read of an event before its turn comes.
#[derive(Deserialize)]
struct Head {
    event_id: u64,
    #[serde(default)]
    attention_dp_rank: Option<u16>,
}

/// Takes an answer apart. An event without a number is bad, and leaves a gap behind: its neighbours are not harmed.
///
/// # Errors
///
/// The answer is no list. What it told is lost.
pub fn split(answer: &Bytes) -> Result<Vec<Result<Numbered, BadEvent>>, PayloadError> {
    // `null` is what an engine without events answers.
    let events: Option<Vec<&RawValue>> =
        serde_json::from_slice(answer).map_err(|_| PayloadError("it is no JSON list"))?;
    Ok(events.unwrap_or_default().into_iter().map(|event| number(answer, event)).collect())
}

fn number(answer: &Bytes, event: &RawValue) -> Result<Numbered, BadEvent> {
    let head: Head = serde_json::from_str(event.get())
        .map_err(|error| BadEvent::Field { kind: KIND, message: error.to_string() })?;
    Ok(Numbered {
        id: head.event_id,
        rank: head.attention_dp_rank.unwrap_or_default(),
        event: answer.slice_ref(event.get().as_bytes()),
    })
}
