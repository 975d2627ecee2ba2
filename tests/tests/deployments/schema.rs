//! A strict checker for the part of JSON Schema that `envoy/schemas` uses.

use serde_json::{Map, Value};

/// One file of `envoy/schemas`.
pub(crate) struct Schemas {
    defs: Map<String, Value>,
}

// === impl Schemas ===

impl Schemas {
    /// Reads a file's text.
    pub(crate) fn parse(text: &str) -> Self {
        let mut file: Value = serde_json::from_str(text).expect("a schema is JSON");
        assert!(file["$comment"].is_string(), "a schema names its source");
        let Value::Object(defs) = file["$defs"].take() else { panic!("a schema has $defs") };
        Self { defs }
    }

    /// Whether there is a schema for `kind`.
    pub(crate) fn knows(&self, kind: &str) -> bool {
        self.defs.contains_key(kind)
    }

    /// All that is wrong with `value`, each with the path where it is.
    pub(crate) fn check(&self, kind: &str, value: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        self.check_at(&self.defs[kind], value, kind, &mut wrong);
        wrong
    }

    fn check_at(&self, schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
        let keywords = schema.as_object().expect("a schema is an object");
        for (keyword, rule) in keywords {
            match keyword.as_str() {
                "$ref" => {
                    let name = rule.as_str().and_then(|rule| rule.strip_prefix("#/$defs/"));
                    self.check_at(&self.defs[name.expect("a $ref within the file")], value, path, wrong);
                }
                "type" => {
                    if !is_of_type(rule.as_str().expect("a type"), value) {
                        wrong.push(format!("{path}: {value} is no {}", rule.as_str().unwrap()));
                    }
                }
                "enum" => {
                    if !rule.as_array().expect("a list").contains(value) {
                        wrong.push(format!("{path}: {value} is none of {rule}"));
                    }
                }
                "format" => {
                    let format = rule.as_str().expect("a format's name");
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    if !has_format(format, &text) {
                        wrong.push(format!("{path}: {value} has not the format {format}"));
                    }
                }
                "required" => {
                    let fields = rule.as_array().expect("a list").iter().map(|name| name.as_str().unwrap());
                    let missing = fields.filter(|field| value.is_object() && value.get(field).is_none());
                    wrong.extend(missing.map(|field| format!("{path}: {field} is missing")));
                }
                "minItems" => {
                    let least = rule.as_u64().expect("a number");
                    if value.as_array().is_some_and(|items| (items.len() as u64) < least) {
                        wrong.push(format!("{path}: fewer than {least}"));
                    }
                }
                "items" => {
                    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check_at(rule, item, &format!("{path}[{number}]"), wrong);
                    }
                }
                "properties" | "additionalProperties" => {}
                _ => panic!("{path}: the checker does not know the keyword {keyword}"),
            }
        }
        if keywords.contains_key("properties") || keywords.contains_key("additionalProperties") {
            self.check_fields(schema, value, path, wrong);
        }
    }

    /// As in the schemas of Kubernetes' kinds, a field that is not named is not allowed unless the schema says so.
    fn check_fields(&self, schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
        for (field, value) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{field}");
            match (schema["properties"].get(field), schema.get("additionalProperties")) {
                (Some(known), _) => self.check_at(known, value, &path, wrong),
                (None, Some(Value::Bool(true))) => {}
                (None, Some(others @ Value::Object(_))) => self.check_at(others, value, &path, wrong),
                (None, _) => wrong.push(format!("{path}: there is no such field")),
            }
        }
    }
}

fn is_of_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        _ => panic!("the checker does not know the type {name}"),
    }
}

fn has_format(name: &str, text: &str) -> bool {
    let all = |text: &str, legal: fn(u8) -> bool| !text.is_empty() && text.bytes().all(legal);
    match name {
        // A DNS subdomain in lower case.
        "name" => {
            let label = |label: &str| {
                all(label, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                    && !label.starts_with('-')
                    && !label.ends_with('-')
            };
            text.len() <= 253 && text.split('.').all(label)
        }
        "port" => text.parse::<u16>().is_ok_and(|port| port > 0),
        // As Gateway API has it (GEP-2257): 1h30m, 10ms.
        "duration" => {
            let mut rest = text;
            while !rest.is_empty() {
                let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                let Some(unit) = ["ms", "h", "m", "s"].iter().find(|unit| rest[digits..].starts_with(**unit))
                else {
                    return false;
                };
                if !(1..=5).contains(&digits) {
                    return false;
                }
                rest = &rest[digits + unit.len()..];
            }
            !text.is_empty()
        }
        // 200m, 256Mi, 2.
        "quantity" => {
            let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
            unit.len() < text.len() && ["", "m", "k", "M", "G", "Ki", "Mi", "Gi"].contains(&unit)
        }
        // With a tag: `latest` is nobody's version.
        "image" => {
            let name = text.rsplit('/').next().unwrap_or_default();
            all(text, |b| b.is_ascii_graphic()) && !text.contains("://") && name.contains(':')
        }
        "module" => {
            ["oci://", "http://", "https://", "file://"].iter().any(|scheme| text.starts_with(scheme))
        }
        _ => panic!("the checker does not know the format {name}"),
    }
}

#[test]
fn refuses_what_it_should() {
    use serde_json::json;

    let schemas = Schemas::parse(
        &json!({
            "$comment": "this test",
            "$defs": {
                "Name": { "type": "string", "format": "name" },
                "Thing": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": { "$ref": "#/$defs/Name" },
                        "mode": { "type": "string", "enum": ["a", "b"] },
                        "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                        "list": {
                            "type": "array", "minItems": 1,
                            "items": { "type": "object", "properties": { "port": { "type": "integer", "format": "port" } } }
                        },
                        "free": {},
                    },
                },
            },
        })
        .to_string(),
    );
    let good = json!({
        "name": "a-b.c", "mode": "b", "labels": { "x/y": "z" }, "list": [{ "port": 80 }], "free": [{ "any": 1 }]
    });
    assert_eq!(schemas.check("Thing", &good), Vec::<String>::new());
    let cases = [
        (json!({}), "Thing: name is missing"),
        (json!({ "name": "a", "nmae": 1 }), "Thing.nmae: there is no such field"),
        (json!({ "name": "A" }), "Thing.name: \"A\" has not the format name"),
        (json!({ "name": "a", "mode": "c" }), "Thing.mode: \"c\" is none of [\"a\",\"b\"]"),
        (json!({ "name": "a", "labels": { "x": 1 } }), "Thing.labels.x: 1 is no string"),
        (json!({ "name": "a", "list": [] }), "Thing.list: fewer than 1"),
        (json!({ "name": "a", "list": [{ "port": 0 }] }), "Thing.list[0].port: 0 has not the format port"),
        (json!({ "name": "a", "list": [{ "prot": 1 }] }), "Thing.list[0].prot: there is no such field"),
        (json!([]), "Thing: [] is no object"),
    ];
    for (value, expected) in cases {
        assert_eq!(schemas.check("Thing", &value), [expected]);
    }
}

#[test]
fn knows_the_formats() {
    let cases = [
        ("duration", "1h30m", true),
        ("duration", "10ms", true),
        ("duration", "0s", true),
        ("duration", "10", false),
        ("duration", "", false),
        ("duration", "0.5s", false),
        ("quantity", "256Mi", true),
        ("quantity", "200m", true),
        ("quantity", "Mi", false),
        ("image", "registry.example.com:5000/a/b:1", true),
        ("image", "registry.example.com:5000/a/b", false),
        ("image", "oci://a/b:1", false),
        ("module", "oci://a/b:1", true),
        ("module", "a/b:1", false),
    ];
    for (format, text, expected) in cases {
        assert_eq!(has_format(format, text), expected, "{format} {text}");
    }
}
