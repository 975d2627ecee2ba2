//! Every manifest parses, has the shape of its kind, and names only what is there.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;
use warmroute_e2e::workspace::{self, ScratchDir};

use crate::schema::Schemas;

/// The folders of `envoy` that hold manifests.
const FOLDERS: [&str; 3] = ["kubernetes", "istio", "gateway"];

/// The documents of a YAML file below `envoy`.
pub(crate) fn documents(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(workspace::root().join("envoy").join(file)).expect(file);
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The one document of that kind and name in a file.
pub(crate) fn document(file: &str, kind: &str, name: &str) -> Value {
    let is_it = |document: &Value| document["kind"] == kind && document["metadata"]["name"] == name;
    let mut found = documents(file).into_iter().filter(is_it);
    let document = found.next().unwrap_or_else(|| panic!("{file} has no {kind} {name}"));
    assert!(found.next().is_none(), "{file} has two of {kind} {name}");
    document
}

/// All manifests with their file's name.
pub(crate) fn all() -> Vec<(String, Value)> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        let dir = workspace::root().join("envoy").join(folder);
        for entry in fs::read_dir(&dir).expect(folder) {
            files.push(format!("{folder}/{}", entry.unwrap().file_name().to_str().unwrap()));
        }
    }
    files.sort();
    let with_name = |file: String| documents(&file).into_iter().map(move |document| (file.clone(), document));
    files.into_iter().flat_map(with_name).collect()
}

fn schemas() -> Vec<Schemas> {
    let mut schemas = Vec::new();
    for entry in fs::read_dir(workspace::root().join("envoy/schemas")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            schemas.push(Schemas::parse(&fs::read_to_string(path).unwrap()));
        }
    }
    schemas
}

#[test]
fn every_manifest_has_the_shape_of_its_kind() {
    let schemas = schemas();
    for (file, document) in all() {
        let kind = document["kind"].as_str().unwrap_or_else(|| panic!("{file}: a document has no kind"));
        let schema = schemas.iter().find(|schemas| schemas.knows(kind));
        let schema = schema.unwrap_or_else(|| panic!("{file}: envoy/schemas has no {kind}"));
        let wrong = schema.check(kind, &document);
        assert!(wrong.is_empty(), "{file}: {wrong:#?}");
    }
}

#[test]
fn every_manifest_is_in_the_guide() {
    let guide = fs::read_to_string(workspace::root().join("docs/deploy.md")).unwrap();
    for (file, _) in all() {
        let (_, name) = file.split_once('/').unwrap();
        assert!(
            guide.contains(&format!("`{name}`")) || guide.contains(&file),
            "docs/deploy.md has no {file}"
        );
    }
}

#[test]
fn every_reference_leads_to_something_in_the_same_namespace() {
    for folder in ["istio", "gateway"] {
        let here = format!("{folder}/");
        let documents: Vec<_> = all()
            .into_iter()
            .filter(|(file, _)| file.starts_with(&here) || file.starts_with("kubernetes/"))
            .collect();
        let known: BTreeSet<(&str, &str)> =
            documents.iter().map(|(_, it)| (text(it, "/kind"), name(it))).collect();
        for (file, document) in &documents {
            if document["kind"] != "GatewayClass" {
                assert_eq!(document["metadata"]["namespace"], "inference", "{file}");
            }
            for (kind, name) in references(document) {
                assert!(known.contains(&(kind.as_str(), name.as_str())), "{file}: there is no {kind} {name}");
            }
        }
    }
}

/// What a document refers to, as kind and name.
fn references(document: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |reference: &Value, default: &str| {
        let kind = reference["kind"].as_str().unwrap_or(default).to_owned();
        found.push((kind, reference["name"].as_str().unwrap().to_owned()));
    };
    let spec = &document["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&spec["targetRefs"]).iter().for_each(|it| add(it, ""));
    list(&spec["parentRefs"]).iter().for_each(|it| add(it, "Gateway"));
    for rule in list(&spec["rules"]) {
        list(&rule["backendRefs"]).iter().for_each(|it| add(it, "Service"));
    }
    for single in [&spec["targetRef"], &spec["infrastructure"]["parametersRef"]] {
        if single.is_object() {
            add(single, "");
        }
    }
    for volume in list(&spec["template"]["spec"]["volumes"]) {
        add(&volume["configMap"], "ConfigMap");
    }
    if document["kind"] == "EndpointSlice" {
        let service = &document["metadata"]["labels"]["kubernetes.io/service-name"];
        found.push(("Service".to_owned(), service.as_str().unwrap().to_owned()));
    }
    if let Some(host) = spec["host"].as_str() {
        let service = host.strip_suffix(".inference.svc.cluster.local").expect(host);
        found.push(("Service".to_owned(), service.to_owned()));
    }
    found
}

#[test]
fn the_collector_accepts_its_config_map_and_finds_the_engines_that_have_the_requests() {
    let config = document("kubernetes/collector.yaml", "ConfigMap", "warmroute-collector");
    let text = config["data"]["collector.yaml"].as_str().unwrap();
    let dir = ScratchDir::new("collector-config-map").unwrap();
    let path = dir.path().join("collector.yaml");
    fs::write(&path, text).unwrap();
    let mut check = Command::new(workspace::program("warmroute-collector").unwrap());
    let checked = check.args(["run", "--check", "--config"]).arg(&path).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    let config: Value = serde_saphyr::from_str(text).unwrap();
    let dns = text_of(&config["pools"][0]["discover"]["dns"]);
    let service = document("kubernetes/engines.yaml", "Service", "vllm-workers");
    let port = &service["spec"]["ports"][0]["port"];
    assert_eq!(dns, format!("vllm-workers.inference.svc.cluster.local:{port}"));
    // A name with one address, which no engine has, would not do.
    assert_eq!(service["spec"]["clusterIP"], "None");
    let endpoints = |name: &str| -> BTreeSet<String> {
        let slice = document("kubernetes/engines.yaml", "EndpointSlice", name);
        assert_eq!(&slice["ports"][0]["port"], port);
        slice["endpoints"].as_array().unwrap().iter().map(|it| text_of(&it["addresses"][0])).collect()
    };
    assert_eq!(endpoints("vllm-workers-1"), endpoints("vllm-1"));
    dir.remove().unwrap();
}

#[test]
fn the_collectors_ports_paths_and_labels_agree() {
    let config = document("kubernetes/collector.yaml", "ConfigMap", "warmroute-collector");
    let deployment = document("kubernetes/collector.yaml", "Deployment", "warmroute-collector");
    let service = document("kubernetes/collector.yaml", "Service", "warmroute-collector");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let port = &container["ports"][0];
    let settings: Value = serde_saphyr::from_str(config["data"]["collector.yaml"].as_str().unwrap()).unwrap();
    assert_eq!(text_of(&settings["listen"]), format!("0.0.0.0:{}", port["containerPort"]));
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    assert_eq!(service["spec"]["ports"][0]["port"], port["containerPort"]);
    for probe in ["readinessProbe", "livenessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], port["name"]);
        assert_eq!(container[probe]["httpGet"]["path"], "/healthz");
    }
    let mount = &container["volumeMounts"][0];
    assert_eq!(mount["name"], pod["volumes"][0]["name"]);
    let file = format!("{}/collector.yaml", text_of(&mount["mountPath"]));
    assert_eq!(container["args"], serde_json::json!(["run", "--config", file]));
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&service["spec"]["selector"], labels);
    assert_eq!(deployment["spec"]["replicas"], 1);
}

fn name(document: &Value) -> &str {
    text(document, "/metadata/name")
}

fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).expect(pointer)
}

fn text_of(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}
