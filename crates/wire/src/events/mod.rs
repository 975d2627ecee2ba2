//! The family of formats that vLLM has begun and that all engines share: batches of events, as arrays or maps.
//!
//! A batch is `[time, [event, ...], rank]`; early releases have no rank. An event is an array, its fields in the order in
//! which vLLM's releases added them, or a map:
//!
//! ```text
//! BlockStored   block_hashes parent_block_hash token_ids block_size lora_id  medium  lora_name  extra_keys  group_idx
//!               kv_cache_spec_kind kv_cache_spec_sliding_window  locality  ownership  session_id  lookahead_token_ids
//! BlockRemoved  block_hashes  medium  group_idx  locality  ownership  (proposed: remaining_copy_counts)
//! AllBlocksCleared
//! ```
//!
//! Fields that this module does not know, at an array's end or in a map, are stepped over. An event is found first
//! ([`super::msgpack`]) and read then, so that a bad one leaves its neighbours alone. What the fields mean is each
//! engine's own: its [`Dialect`] turns them into events of the index.

mod extra_keys;
mod fields;
mod removed;
mod stored;
mod values;

use serde::Deserialize;
use warmroute_index::event::{Event, Removed, Stored};

pub(super) use self::removed::RawRemoved;
pub(super) use self::stored::RawStored;
pub(super) use self::values::Token;
use super::batch::{BadEvent, Batch, PayloadError, Skipped, Unsupported};
use super::msgpack::{Cursor, Damaged};

/// An event's values nest three deep; more is no event, and the reader's own stack stays small.
const MAX_DEPTH: usize = 16;

/// What one engine means by its events.
pub(super) trait Dialect {
    /// A batch of so many parts begins.
    ///
    /// # Errors
    ///
    /// It shows a release that cannot be indexed.
    fn begin(&mut self, _parts: Option<u32>) -> Result<(), Unsupported> {
        Ok(())
    }

    /// Reads a store.
    ///
    /// # Errors
    ///
    /// It is not for the index.
    fn stored(&mut self, raw: RawStored) -> Result<Stored, NotIndexed>;

    /// Reads a removal.
    ///
    /// # Errors
    ///
    /// It is not for the index.
    fn removed(&mut self, raw: RawRemoved) -> Result<Removed, NotIndexed>;
}

/// Why an event of a known type is not for the index.
#[derive(Debug)]
pub(super) enum NotIndexed {
    /// It is whole, but of no use.
    Skipped(Skipped),
    /// It contradicts itself.
    Bad(&'static str),
    /// It shows a release that cannot be indexed.
    Unsupported(Unsupported),
}

/// The types of events that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stored,
    Removed,
    Cleared,
}

/// Events in one payload. An engine's step has some hundreds; a payload of 64 MiB could claim as many millions, and each
/// takes far more memory once it is read.
const MAX_EVENTS: usize = 1_000_000;

/// Reads one payload: see [`super::Adapter::decode`].
pub(super) fn decode(payload: &[u8], dialect: &mut impl Dialect) -> Result<Batch, PayloadError> {
    let mut events = Cursor::new(payload);
    let (parts, count) = enter_events(&mut events)?;
    let mut batch = Batch::default();
    if let Err(unsupported) = dialect.begin(parts) {
        return Ok(Batch { unsupported: Some(unsupported), ..batch });
    }
    for _ in 0..count {
        if batch.len() >= MAX_EVENTS {
            batch.bad.push(BadEvent::TooMany);
            break;
        }
        let Ok(event) = events.value() else {
            // Where the next event begins is not known: the rest is lost, the events before it are not.
            batch.bad.push(BadEvent::Cut);
            break;
        };
        if let Err(unsupported) = decode_event(event, dialect, &mut batch) {
            return Ok(Batch { unsupported: Some(unsupported), ..Batch::default() });
        }
    }
    Ok(batch)
}

fn decode_event(event: &[u8], dialect: &mut impl Dialect, batch: &mut Batch) -> Result<(), Unsupported> {
    let kind = match type_of(event) {
        Ok(Some(name)) => Kind::of(name),
        Ok(None) | Err(Damaged) => {
            batch.bad.push(BadEvent::Untyped);
            return Ok(());
        }
    };
    let Some(kind) = kind else {
        batch.skipped.push(Skipped::UnknownType);
        return Ok(());
    };
    let event = match kind {
        Kind::Cleared => Ok(Ok(Event::Cleared)),
        Kind::Stored => read(event, kind).map(|raw| dialect.stored(raw).map(Event::Stored)),
        Kind::Removed => read(event, kind).map(|raw| dialect.removed(raw).map(Event::Removed)),
    };
    match event {
        Ok(Ok(event)) => batch.events.push(event),
        Ok(Err(NotIndexed::Skipped(why))) => batch.skipped.push(why),
        Ok(Err(NotIndexed::Bad(message))) => batch.bad.push(kind.bad(message)),
        Ok(Err(NotIndexed::Unsupported(unsupported))) => return Err(unsupported),
        Err(bad) => batch.bad.push(bad),
    }
    Ok(())
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

/// Steps to a batch's first event: how many parts the batch has, where it is a list, and how many events there are.
fn enter_events(cursor: &mut Cursor<'_>) -> Result<(Option<u32>, u32), PayloadError> {
    let no_list = PayloadError("its events are no list");
    let cut = |_: Damaged| PayloadError("it is cut or damaged");
    if let Some(pairs) = cursor.map().map_err(cut)? {
        for _ in 0..pairs {
            if cursor.text().map_err(cut)? == Some("events") {
                return Ok((None, cursor.array().map_err(cut)?.ok_or(no_list)?));
            }
            cursor.value().map_err(cut)?;
        }
        return Err(PayloadError("it has no events"));
    }
    match cursor.array().map_err(cut)? {
        Some(parts @ 2..) => {
            // The time, whatever its type.
            cursor.value().map_err(cut)?;
            Ok((Some(parts), cursor.array().map_err(cut)?.ok_or(no_list)?))
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
