//! vLLM's event batches, 0.9 to 0.33, and those of engines that speak the same format.
//!
//! A batch is `[time, [event, ...], rank]`; the rank came with 0.9.1. An event is an array up to 0.23, its fields in
//! the order in which releases added them, and a map since 0.24:
//!
//! ```text
//! BlockStored   block_hashes parent_block_hash token_ids block_size lora_id  medium  lora_name  extra_keys  group_idx
//!               kv_cache_spec_kind kv_cache_spec_sliding_window  locality  ownership  session_id  lookahead_token_ids
//! BlockRemoved  block_hashes  medium  group_idx  locality  ownership
//! AllBlocksCleared
//! ```
//!
//! Fields that this module does not know, at an array's end or in a map, are stepped over. An event is found first
//! ([`super::msgpack`]) and read then, so that a bad one leaves its neighbours alone.

mod extra_keys;
mod fields;
mod removed;
mod stored;
mod values;

use std::collections::HashMap;

use serde::Deserialize;
use warmroute_index::event::{Event, Group};

use self::removed::RawRemoved;
use self::stored::RawStored;
use super::batch::{BadEvent, Batch, PayloadError, Skipped};
use super::msgpack::{Cursor, Damaged};

/// An event's values nest three deep; more is no event, and the reader's own stack stays small.
const MAX_DEPTH: usize = 16;

/// Reads the batches of one rank.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// Whether each group that has told its kind keeps every token. Removals do not tell it.
    groups: HashMap<Group, bool>,
}

/// The types of events that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stored,
    Removed,
    Cleared,
}

// === impl Decoder ===

impl Decoder {
    /// Reads one payload: see [`super::Adapter::decode`].
    pub(super) fn decode(&mut self, payload: &[u8]) -> Result<Batch, PayloadError> {
        let mut events = Cursor::new(payload);
        let count = enter_events(&mut events)?;
        let mut batch = Batch::default();
        for _ in 0..count {
            let Ok(event) = events.value() else {
                // Where the next event begins is not known: the rest is lost, the events before it are not.
                batch.bad.push(BadEvent::Cut);
                break;
            };
            self.decode_event(event, &mut batch);
        }
        Ok(batch)
    }

    /// Another process answers now: its groups are its own.
    pub(super) fn reset(&mut self) {
        self.groups.clear();
    }

    fn decode_event(&mut self, event: &[u8], batch: &mut Batch) {
        let kind = match type_of(event) {
            Ok(Some(name)) => Kind::of(name),
            Ok(None) | Err(Damaged) => return batch.bad.push(BadEvent::Untyped),
        };
        match kind {
            None => batch.skipped.push(Skipped::UnknownType),
            Some(Kind::Cleared) => batch.events.push(Event::Cleared),
            Some(Kind::Stored) => match read::<RawStored>(event, Kind::Stored) {
                Ok(raw) => self.stored(raw, batch),
                Err(bad) => batch.bad.push(bad),
            },
            Some(Kind::Removed) => match read::<RawRemoved>(event, Kind::Removed) {
                Ok(raw) => self.removed(raw, batch),
                Err(bad) => batch.bad.push(bad),
            },
        }
    }

    fn stored(&mut self, raw: RawStored, batch: &mut Batch) {
        if let Some(keeps_all) = raw.keeps_every_token() {
            self.groups.insert(raw.group(), keeps_all);
        }
        if !self.is_indexed(raw.group()) {
            batch.skipped.push(Skipped::OtherAttention);
        } else if !raw.is_aligned() {
            batch.skipped.push(Skipped::Misaligned);
        } else {
            match raw.into_event() {
                Ok(stored) => batch.events.push(Event::Stored(stored)),
                Err(message) => batch.bad.push(Kind::Stored.bad(message)),
            }
        }
    }

    fn removed(&mut self, raw: RawRemoved, batch: &mut Batch) {
        let removed = raw.into_event();
        if self.is_indexed(removed.group) {
            batch.events.push(Event::Removed(removed));
        } else {
            batch.skipped.push(Skipped::OtherAttention);
        }
    }

    fn is_indexed(&self, group: Group) -> bool {
        self.groups.get(&group).copied().unwrap_or(true)
    }
}

// === impl Kind ===

impl Kind {
    fn of(name: &str) -> Option<Self> {
        [Self::Stored, Self::Removed, Self::Cleared].into_iter().find(|kind| kind.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Stored => "BlockStored",
            Self::Removed => "BlockRemoved",
            Self::Cleared => "AllBlocksCleared",
        }
    }

    fn bad(self, message: &(impl ToString + ?Sized)) -> BadEvent {
        BadEvent::Field { kind: self.name(), message: message.to_string() }
    }
}

/// Steps to a batch's first event; how many there are.
fn enter_events(cursor: &mut Cursor<'_>) -> Result<u32, PayloadError> {
    let cut = |_: Damaged| PayloadError("it is cut or damaged");
    if let Some(pairs) = cursor.map().map_err(cut)? {
        for _ in 0..pairs {
            if cursor.text().map_err(cut)? == Some("events") {
                return cursor.array().map_err(cut)?.ok_or(PayloadError("its events are no list"));
            }
            cursor.value().map_err(cut)?;
        }
        return Err(PayloadError("it has no events"));
    }
    match cursor.array().map_err(cut)? {
        Some(2..) => {
            // The time, whatever its type.
            cursor.value().map_err(cut)?;
            cursor.array().map_err(cut)?.ok_or(PayloadError("its events are no list"))
        }
        Some(_) => Err(PayloadError("it has fewer than two parts")),
        None => Err(PayloadError("it is no list")),
    }
}

/// An event's type: the first value of an array, the value of `type` in a map.
fn type_of(event: &[u8]) -> Result<Option<&str>, Damaged> {
    let mut cursor = Cursor::new(event);
    if let Some(pairs) = cursor.map()? {
        for _ in 0..pairs {
            if cursor.text()? == Some("type") {
                return cursor.text();
            }
            cursor.value()?;
        }
        return Ok(None);
    }
    match cursor.array()? {
        Some(1..) => cursor.text(),
        _ => Ok(None),
    }
}

fn read<'de, T: Deserialize<'de>>(event: &'de [u8], kind: Kind) -> Result<T, BadEvent> {
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(event);
    deserializer.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut deserializer).map_err(|error| kind.bad(&error))
}

#[cfg(test)]
mod tests;
