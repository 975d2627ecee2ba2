//! Reads an event's fields, by name from a map or by place from an array, into one struct.

use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Where a field's value comes from.
pub(super) trait Source<'de> {
    type Error: Error;

    /// The value; `None` where the array ends before it.
    fn value<T: Deserialize<'de>>(&mut self) -> Result<Option<T>, Self::Error>;
}

/// An event whose fields have names, and an order for arrays.
pub(super) trait Fields: Default {
    /// The names, in the order in which an array has them after the event's type.
    const ORDER: &'static [&'static str];

    /// Takes the value of the field `name`. Names that are none of the event's are stepped over.
    fn take<'de, S: Source<'de>>(&mut self, name: &str, source: &mut S) -> Result<(), S::Error>;
}

struct InMap<A>(A);
struct InArray<A>(A);
struct EventVisitor<T>(PhantomData<T>);

/// Reads an event of either shape.
pub(super) fn deserialize<'de, T: Fields, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(EventVisitor(PhantomData))
}

// === impl EventVisitor ===

impl<'de, T: Fields> Visitor<'de> for EventVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an event as a map or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let mut event = T::default();
        let mut source = InMap(map);
        while let Some(name) = source.0.next_key::<Key<'de>>()? {
            event.take(name.0.unwrap_or_default(), &mut source)?;
        }
        Ok(event)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        let mut event = T::default();
        let mut source = InArray(seq);
        source.0.next_element::<IgnoredAny>()?; // the type
        for name in T::ORDER {
            event.take(name, &mut source)?;
        }
        // The reader refuses an array that is left before its end.
        while source.0.next_element::<IgnoredAny>()?.is_some() {}
        Ok(event)
    }
}

// === impl InMap ===

impl<'de, A: MapAccess<'de>> Source<'de> for InMap<A> {
    type Error = A::Error;

    fn value<T: Deserialize<'de>>(&mut self) -> Result<Option<T>, A::Error> {
        self.0.next_value().map(Some)
    }
}

// === impl InArray ===

impl<'de, A: SeqAccess<'de>> Source<'de> for InArray<A> {
    type Error = A::Error;

    fn value<T: Deserialize<'de>>(&mut self) -> Result<Option<T>, A::Error> {
        self.0.next_element()
    }
}

/// A map's key: a text, or something else that names no field.
struct Key<'de>(Option<&'de str>);

// === impl Key ===

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a field's name")
            }

            fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Some(name)))
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
                Ok(Key(None))
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
                Ok(Key(None))
            }

            fn visit_borrowed_bytes<E: Error>(self, _: &'de [u8]) -> Result<Self::Value, E> {
                Ok(Key(None))
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Key(None))
            }
        }

        deserializer.deserialize_any(KeyVisitor)
    }
}
