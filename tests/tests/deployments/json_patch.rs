//! JSON Patch (RFC 6902) as Envoy Gateway takes it, as far as the manifests use it: `add`, at a JSON pointer or at what a
//! JSONPath finds (`internal/utils/jsonpatch` in envoyproxy/gateway).

use serde_json::Value;

/// Applies one operation.
pub(crate) fn apply(document: &mut Value, operation: &Value) {
    assert_eq!(operation["op"], "add", "only `add` is known here");
    let path = operation["path"].as_str().expect("a path");
    let Some(json_path) = operation["jsonPath"].as_str() else {
        add(document, path, &operation["value"]);
        return;
    };
    let found = find(document, json_path);
    assert!(!found.is_empty(), "{json_path} finds nothing in {document:#}");
    for pointer in found {
        add(document, &format!("{pointer}/{}", path.trim_start_matches('/')), &operation["value"]);
    }
}

fn add(document: &mut Value, pointer: &str, value: &Value) {
    let (parent, member) = pointer.rsplit_once('/').expect("a pointer below the root");
    match document.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.insert(member.to_owned(), value.clone());
        }
        Some(Value::Array(items)) if member == "-" => items.push(value.clone()),
        other => panic!("cannot add {pointer} to {other:?}"),
    }
}

/// The pointers that `..LIST[?(@.FIELD=='VALUE')].NAME.NAME` finds.
fn find(document: &Value, json_path: &str) -> Vec<String> {
    let parse = || {
        let (list, rest) = json_path.strip_prefix("..")?.split_once("[?(@.")?;
        let (field, rest) = rest.split_once("=='")?;
        let (value, rest) = rest.split_once("')]")?;
        Some((list, field, value, rest.replace('.', "/")))
    };
    let (list, field, value, rest) =
        parse().unwrap_or_else(|| panic!("{json_path} is not of the known form"));
    let mut found = Vec::new();
    walk(document, "", &mut |pointer, node| {
        let is_in_list =
            pointer.rsplit_once('/').is_some_and(|(parent, _)| parent.ends_with(&format!("/{list}")));
        if is_in_list && node[field] == value && document.pointer(&format!("{pointer}{rest}")).is_some() {
            found.push(format!("{pointer}{rest}"));
        }
    });
    found
}

fn walk(node: &Value, pointer: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(pointer, node);
    match node {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                walk(value, &format!("{pointer}/{name}"), visit);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                walk(item, &format!("{pointer}/{number}"), visit);
            }
        }
        _ => {}
    }
}

#[test]
fn adds_where_it_is_told() {
    use serde_json::json;

    let mut document = json!({ "a/b": { "list": [{ "name": "x" }, { "name": "y/z", "c": { "d": {} } }] } });
    apply(&mut document, &json!({ "op": "add", "path": "/a~1b/list/-", "value": 1 }));
    let by_json_path =
        json!({ "op": "add", "jsonPath": "..list[?(@.name=='y/z')].c.d", "path": "e", "value": 2 });
    apply(&mut document, &by_json_path);
    let expected =
        json!({ "a/b": { "list": [{ "name": "x" }, { "name": "y/z", "c": { "d": { "e": 2 } } }, 1] } });
    assert_eq!(document, expected);
}
