//! JSON as Python has it: objects keep their order and a repeated key keeps its first place with its last value.
//!
//! A template that writes a tool's schema writes its keys in the order in which the client sent them, so a map that sorts
//! or shuffles would change the prompt.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A value of JSON. An integer beyond 64 bits is read as a float.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Json {
    /// `null`, or nothing at all.
    #[default]
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(Arc<str>),
    /// A list.
    List(Vec<Json>),
    /// An object, in the order of its keys.
    Object(Vec<(Arc<str>, Json)>),
}

/// Above this many keys, repeated ones are looked for with a table.
const FEW_KEYS: usize = 16;

// === impl Json ===

impl Json {
    /// Reads a text as JSON.
    ///
    /// # Errors
    ///
    /// It is none, or nested deeper than 128 levels.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(Arc::from(text))
    }

    /// An object.
    pub fn object<const N: usize>(fields: [(&str, Json); N]) -> Self {
        Self::Object(fields.map(|(key, value)| (Arc::from(key), value)).into())
    }

    /// The value of a key; null is taken as absent.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Self::Object(fields) => fields
                .iter()
                .find(|(name, _)| **name == *key)
                .map(|(_, value)| value)
                .filter(|value| **value != Self::Null),
            _ => None,
        }
    }

    /// The value of a key, if it is a text.
    pub fn get_str(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// Sets a key, in its place if it is there.
    pub fn set(&mut self, key: &str, value: Json) {
        let Self::Object(fields) = self else { return };
        match fields.iter_mut().find(|(name, _)| **name == *key) {
            Some((_, old)) => *old = value,
            None => fields.push((Arc::from(key), value)),
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The list, if it is one.
    pub fn as_list(&self) -> Option<&[Json]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The keys and values, if it is an object.
    pub fn as_object(&self) -> Option<&[(Arc<str>, Json)]> {
        match self {
            Self::Object(fields) => Some(fields),
            _ => None,
        }
    }

    /// What Python takes as true.
    pub fn is_truthy(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(value) => *value,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Object(fields) => !fields.is_empty(),
        }
    }
}

impl From<&Json> for Value {
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(value) => Value::from(*value),
            Json::Int(number) => i64::try_from(*number).map_or_else(|_| Value::from(*number), Value::from),
            Json::Float(number) => Value::from(*number),
            Json::Text(text) => Value::from(Arc::clone(text)),
            Json::List(items) => Value::from(items.iter().map(Value::from).collect::<Vec<_>>()),
            Json::Object(fields) => {
                fields.iter().map(|(key, value)| (Arc::clone(key), Value::from(value))).collect()
            }
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => serializer.serialize_i64(number),
                (_, Ok(number)) => serializer.serialize_u64(number),
                _ => serializer.serialize_f64(*number as f64),
            },
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => items.serialize(serializer),
            Self::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(&**key, value)?;
                }
                map.end()
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

// === impl JsonVisitor ===

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Int(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut fields: Vec<(Arc<str>, Json)> = Vec::new();
        let mut places: HashMap<Arc<str>, usize> = HashMap::new();
        while let Some((key, value)) = map.next_entry::<Box<str>, Json>()? {
            let key: Arc<str> = key.into();
            let old = if fields.len() < FEW_KEYS {
                fields.iter().position(|(name, _)| *name == key)
            } else {
                if places.is_empty() {
                    places = fields.iter().map(|(name, _)| Arc::clone(name)).zip(0..).collect();
                }
                places.get(&key).copied()
            };
            match old.and_then(|place| fields.get_mut(place)) {
                Some((_, old)) => *old = value,
                None => {
                    if !places.is_empty() {
                        places.insert(Arc::clone(&key), fields.len());
                    }
                    fields.push((key, value));
                }
            }
        }
        Ok(Json::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> String {
        let json = Json::parse(text.as_bytes()).unwrap();
        json.as_object().unwrap().iter().map(|(key, _)| &**key).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn keys_keep_their_order_and_the_last_value_of_a_repeated_one_counts() {
        assert_eq!(keys(r#"{"z":1,"a":2,"m":3,"z":4}"#), "z,a,m");
        let many: String = (0..40).rev().map(|i| format!("\"k{}\":{i},", i % 30)).collect();
        let json = Json::parse(format!("{{{many}\"end\":0}}").as_bytes()).unwrap();
        assert_eq!(json.as_object().unwrap().len(), 31);
        assert_eq!((json.get("k9"), json.get("k10")), (Some(&Json::Int(9)), Some(&Json::Int(10))));
    }

    #[test]
    fn null_is_absent_and_deep_nesting_is_refused() {
        assert_eq!(Json::parse(br#"{"a":null}"#).unwrap().get("a"), None);
        assert!(Json::parse("[".repeat(100_000).as_bytes()).is_err());
        assert!(Json::parse(br#""\ud800""#).is_err(), "half a surrogate pair is no text");
    }
}
