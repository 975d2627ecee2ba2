//! Random bodies, written with random blanks and escapes and cut at random, must read as serde_json reads them.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

const TEXT_KEYS: [&str; 3] = ["messages", "input", "text"];

/// What the documented rules make of a body, with nothing resumable about them.
fn expected(body: &Map<String, Value>) -> Outcome {
    let prompts: Vec<&Value> = ["prompt", "token_ids", "input_ids"]
        .iter()
        .filter_map(|key| body.get(*key))
        .filter(|v| !v.is_null())
        .collect();
    if prompts.len() > 1 {
        return Err(PromptError::DuplicatePrompt);
    }
    let (mut prompt, tokens) = match prompts.first() {
        None if TEXT_KEYS.iter().any(|key| body.get(*key).is_some_and(|value| !value.is_null())) => {
            (PromptKind::Text, vec![])
        }
        None => (PromptKind::Absent, vec![]),
        Some(value) => expected_prompt(value)?,
    };
    if body.get("prompt_embeds").is_some_and(|value| !value.is_null()) {
        prompt = PromptKind::Embeds;
    }
    let name = |key: &str| match body.get(key) {
        None | Some(Value::Null) => Name::Absent,
        Some(Value::String(name)) if name.len() <= 1024 => Name::Known(name.clone()),
        Some(_) => Name::Unknown,
    };
    let (model, cache_salt) = (name("model"), name("cache_salt"));
    let (lora_path, extra_key) = (name("lora_path"), name("extra_key"));
    Ok((BodySummary { prompt, model, cache_salt, lora_path, extra_key }, tokens))
}

fn expected_prompt(value: &Value) -> Result<(PromptKind, Vec<u32>), PromptError> {
    let items = match value {
        Value::String(_) => return Ok((PromptKind::Text, vec![])),
        Value::Array(items) => items,
        _ => return Ok((PromptKind::Absent, vec![])),
    };
    let list = match items.first() {
        Some(Value::String(_)) => return Ok((PromptKind::Text, vec![])),
        Some(Value::Array(inner)) => inner,
        _ => items,
    };
    if list.first().is_some_and(|first| !first.is_number()) {
        return Ok((PromptKind::Absent, vec![]));
    }
    let token =
        |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or(PromptError::MalformedBody);
    let tokens = list.iter().map(token).collect::<Result<Vec<u32>, _>>()?;
    Ok((PromptKind::Tokens { count: tokens.len() }, tokens))
}

/// Compares outcomes. Which of two faults in one body is named first is free.
fn same(found: &Outcome, expected: &Outcome) -> bool {
    match (found, expected) {
        (Ok((found, _)), Ok((expected, _))) if expected.prompt == PromptKind::Embeds => found == expected,
        (Ok(found), Ok(expected)) => found == expected,
        (Err(_), Err(_)) => true,
        _ => false,
    }
}

fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => any::<u32>().prop_map(Value::from),
        4 => (0_u32..300).prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => prop::num::f64::NORMAL.prop_map(Value::from),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any_number(),
        any::<String>().prop_map(Value::from),
        r#"[\\"{}\[\],:a ]{0,12}"#.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let keys = prop_oneof![any::<String>(), Just("prompt".to_owned()), Just("model".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn tokens_value() -> impl Strategy<Value = Value> {
    let ids = || prop::collection::vec(any::<u32>(), 0..20);
    prop_oneof![
        6 => ids().prop_map(Value::from),
        3 => prop::collection::vec(ids(), 1..4).prop_map(Value::from),
        1 => prop::collection::vec(any_number(), 0..10).prop_map(Value::from),
        1 => any_value(),
    ]
}

/// Members in any order; the interesting keys more often than not, each at most once.
fn any_body() -> impl Strategy<Value = Vec<(String, Value)>> {
    let named = |key: &'static str, value: BoxedStrategy<Value>| {
        prop::option::of(value).prop_map(move |value| value.map(|value| (key.to_owned(), value)))
    };
    let rarely = |value: BoxedStrategy<Value>| prop_oneof![9 => Just(Value::Null), 1 => value].boxed();
    let name = || {
        let text = prop_oneof![any::<String>(), "[a-z]{1,8}", "x{1020,1028}"].prop_map(Value::from);
        prop_oneof![4 => text, 1 => any_value()].boxed()
    };
    let members = (
        named("prompt", tokens_value().boxed()),
        named("token_ids", rarely(tokens_value().boxed())),
        named("input_ids", rarely(tokens_value().boxed())),
        named("prompt_embeds", rarely(any_value().boxed())),
        prop::sample::select(&TEXT_KEYS[..])
            .prop_flat_map(move |key| named(key, rarely(any_value().boxed()))),
        named("model", name()),
        named("cache_salt", name()),
        named("lora_path", name()),
        named("extra_key", name()),
        prop::collection::vec((".{0,20}", any_value()), 0..5),
    );
    let all = members.prop_map(|(a, b, c, d, e, f, g, h, i, others)| {
        let known = [a, b, c, d, e, f, g, h, i].into_iter().flatten();
        let mut members: Vec<(String, Value)> = Vec::new();
        for (key, value) in known.chain(others) {
            if members.iter().all(|(earlier, _)| *earlier != key) {
                members.push((key, value));
            }
        }
        members
    });
    all.prop_shuffle()
}

/// Writes JSON in one of its many ways, as the dice fall.
struct Writer {
    out: String,
    dice: u64,
}

impl Writer {
    /// A number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides
    }

    fn blanks(&mut self) {
        while self.roll(4) == 0 {
            let blank = [' ', '\n', '\t', '\r'][self.roll(4) as usize];
            self.out.push(blank);
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            let must = character < ' ' || matches!(character, '"' | '\\');
            if must || self.roll(8) == 0 {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let escape =
                        if self.roll(2) == 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
                    self.out.push_str(&escape);
                }
            } else {
                self.out.push(character);
            }
        }
        self.out.push('"');
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.out.push('[');
                self.blanks();
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        self.separator(',');
                    }
                    self.value(item);
                }
                self.blanks();
                self.out.push(']');
            }
            Value::Object(members) => self.object(members.iter()),
            scalar => self.out.push_str(&scalar.to_string()),
        }
    }

    fn object<'a>(&mut self, members: impl Iterator<Item = (&'a String, &'a Value)>) {
        self.out.push('{');
        self.blanks();
        for (position, (key, value)) in members.enumerate() {
            if position > 0 {
                self.separator(',');
            }
            self.text(key);
            self.separator(':');
            self.value(value);
        }
        self.blanks();
        self.out.push('}');
    }

    fn separator(&mut self, separator: char) {
        self.blanks();
        self.out.push(separator);
        self.blanks();
    }
}

fn write(body: &[(String, Value)], dice: u64) -> String {
    let mut writer = Writer { out: String::new(), dice };
    writer.blanks();
    writer.object(body.iter().map(|(key, value)| (key, value)));
    writer.blanks();
    writer.out
}

/// Cuts the body into pieces of at most `longest` bytes.
fn scan_cut(body: &[u8], dice: u64, longest: u64) -> Outcome {
    let mut writer = Writer { out: String::new(), dice };
    let mut rest = body;
    let pieces = std::iter::from_fn(|| {
        let size = (writer.roll(longest) as usize + 1).min(rest.len());
        let (piece, after) = rest.split_at(size);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    });
    scan_pieces(pieces)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_body_reads_as_serde_json_reads_it(body in any_body(), dice: u64, longest in 1_u64..40) {
        let text = write(&body, dice);
        let value: Map<String, Value> = serde_json::from_slice(text.as_bytes()).expect("the writer writes JSON");
        let expected = expected(&value);
        let whole = scan(text.as_bytes());
        prop_assert!(same(&whole, &expected), "{text}\n found {whole:?}\n not {expected:?}");
        prop_assert_eq!(scan_cut(text.as_bytes(), dice, longest), whole, "{}", text);
    }

    #[test]
    fn a_truncated_body_is_refused(body in any_body(), dice: u64, at: prop::sample::Index) {
        let text = write(&body, dice);
        let bytes = text.trim_end().as_bytes();
        prop_assert!(scan(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn a_body_with_a_wrong_byte_reads_as_serde_json_reads_it(
        body in any_body(),
        dice: u64,
        at: prop::sample::Index,
        byte in prop::sample::select(br#"{}[]",:\-+.eE0123456789ntfu x"#.to_vec()),
    ) {
        let mut bytes = write(&body, dice).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let found = scan_cut(&bytes, dice, 20);
        let shown = String::from_utf8_lossy(&bytes);
        match serde_json::from_slice::<Map<String, Value>>(&bytes) {
            // serde_json's map keeps the last of two equal keys; the scanner refuses a second prompt.
            Ok(_) if found == Err(PromptError::DuplicatePrompt) => {}
            Ok(value) => {
                let expected = expected(&value);
                prop_assert!(same(&found, &expected), "{shown}\n found {found:?}\n not {expected:?}");
            }
            // What is only passed over may have half a surrogate pair, bytes that are no UTF-8, or a huge number.
            Err(_) if shown.contains("\\u") || !shown.is_ascii() || shown.contains(['e', 'E']) => {}
            Err(error) => prop_assert!(found.is_err(), "{shown}\n {error}\n found {found:?}"),
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), dice: u64) {
        let whole = scan(&bytes);
        prop_assert_eq!(scan_cut(&bytes, dice, 7), whole);
        let member = [br#"{"prompt":["#, bytes.as_slice()].concat();
        prop_assert_eq!(scan_cut(&member, dice, 7), scan(&member));
    }
}
