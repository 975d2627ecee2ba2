//! Istio's manifests in a real Envoy: what istiod and the agent in the gateway's pod make of them, made here.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use warmroute_e2e::Bootstrap;
use warmroute_e2e::workspace::{self, ScratchDir};

use crate::manifests;
use crate::proxy::{self, Generated, Mode};

const GATEWAY: &str = include_str!("istio-gateway.yaml");
const ROUTER: &str = "envoy.filters.http.router";
const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// How Envoy gets the plugin's configuration.
#[derive(Clone, Copy)]
enum Discovery<'a> {
    /// Through files in this folder, one for each filter, in the place of the agent's stream.
    Files(&'a Path),
    /// Within the listener, so that `envoy --mode validate` reads it too.
    Inline,
}

/// A gateway's proxy with the manifests of a mode.
fn apply(bootstrap: &mut Bootstrap, mode: Mode, discovery: Discovery<'_>) -> Result<()> {
    let mut gateway = Generated::read(GATEWAY, bootstrap)?;
    let mut extensions = Vec::new();
    let mut filters = manifests::documents("istio/steering.yaml");
    match mode {
        Mode::Header => {
            let plugin = manifests::document("istio/wasmplugin.yaml", "WasmPlugin", "warmroute");
            apply_wasm_plugin(&mut gateway, &mut extensions, &plugin);
        }
        Mode::Body => filters.extend(manifests::documents("istio/envoyfilter.yaml")),
    }
    filters.sort_by_key(|filter| filter["spec"]["priority"].as_i64().unwrap_or_default());
    for filter in &filters {
        for patch in filter["spec"]["configPatches"].as_array().expect("a list") {
            assert_eq!(patch["match"]["context"], "GATEWAY");
            apply_patch(&mut gateway, &mut extensions, patch);
        }
    }
    for filter in proxy::http_filters(&mut gateway.listener) {
        if filter.get("config_discovery").is_some() {
            discover(filter, &mut extensions, discovery);
        }
    }
    assert!(extensions.is_empty(), "no filter asks for {extensions:?}");
    gateway.put_into(bootstrap)
}

/// `pilot/pkg/model/extensions.go` and `pilot/pkg/networking/core/extension/extensionfilter.go` in istio/istio: no
/// `vm_id`, no flag, and the code by URL.
fn apply_wasm_plugin(gateway: &mut Generated, extensions: &mut Vec<Value>, plugin: &Value) {
    let name = format!(
        "{}.{}",
        plugin["metadata"]["namespace"].as_str().unwrap(),
        plugin["metadata"]["name"].as_str().unwrap()
    );
    let spec = &plugin["spec"];
    extensions.push(json!({
        "name": name,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": name,
                "root_id": spec["pluginName"],
                "failure_policy": spec["failStrategy"],
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": spec["pluginConfig"].to_string(),
                },
                "vm_config": {
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": { "remote": { "http_uri": { "uri": spec["url"], "cluster": "_", "timeout": "30s" } } },
                },
            },
        },
    }));
    let filter = json!({
        "name": name,
        "config_discovery": {
            "config_source": { "ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3" },
            "type_urls": [
                "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
                "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
            ],
        },
    });
    insert_before_router(gateway, filter);
}

/// `pilot/pkg/networking/core/envoyfilter` in istio/istio.
fn apply_patch(gateway: &mut Generated, extensions: &mut Vec<Value>, patch: &Value) {
    let value = &patch["patch"]["value"];
    let operation = patch["patch"]["operation"].as_str().expect("an operation");
    let filter = &patch["match"]["listener"]["filterChain"]["filter"];
    match (patch["applyTo"].as_str().expect("a target"), operation) {
        ("EXTENSION_CONFIG", "ADD") => extensions.push(value.clone()),
        ("NETWORK_FILTER", "MERGE") => {
            assert_eq!(filter["name"], CONNECTION_MANAGER);
            merge(&mut gateway.listener["filter_chains"][0]["filters"][0], value);
        }
        ("HTTP_FILTER", "INSERT_BEFORE") => {
            assert_eq!(filter["name"], CONNECTION_MANAGER);
            assert_eq!(filter["subFilter"]["name"], ROUTER);
            insert_before_router(gateway, value.clone());
        }
        ("CLUSTER", "MERGE") => {
            let cluster = &patch["match"]["cluster"];
            let name =
                format!("outbound|{}||{}", cluster["portNumber"], cluster["service"].as_str().unwrap());
            let found = gateway.clusters.iter_mut().find(|cluster| cluster["name"] == name);
            merge(found.unwrap_or_else(|| panic!("there is no cluster {name}")), value);
        }
        other => panic!("{other:?} is not known here"),
    }
}

fn insert_before_router(gateway: &mut Generated, filter: Value) {
    let filters = proxy::http_filters(&mut gateway.listener);
    let router = filters.iter().position(|filter| filter["name"] == ROUTER).expect("a router");
    filters.insert(router, filter);
}

/// As protobuf merges: messages are merged, lists appended, the rest replaced.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.as_str()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) => into.extend(from.iter().cloned()),
        (into, from) => *into = from.clone(),
    }
}

/// The agent fetches the code, and names a file in its place (`pkg/wasm/convert.go` in istio/istio).
fn discover(filter: &mut Value, extensions: &mut Vec<Value>, discovery: Discovery<'_>) {
    let at = extensions.iter().position(|extension| extension["name"] == filter["name"]);
    let mut extension = extensions.remove(at.unwrap_or_else(|| panic!("nobody configures {filter}")));
    let code = &mut extension["typed_config"]["config"]["vm_config"]["code"];
    let uri = code["remote"]["http_uri"]["uri"].as_str().expect("the code's URL");
    assert!(uri.starts_with("oci://"), "{uri}");
    *code = json!({ "local": { "filename": workspace::plugin().unwrap() } });
    match discovery {
        Discovery::Inline => {
            filter.as_object_mut().unwrap().remove("config_discovery");
            filter["typed_config"] = extension["typed_config"].take();
        }
        Discovery::Files(dir) => {
            let path = dir.join(format!("{}.json", filter["name"].as_str().unwrap()));
            extension["@type"] = json!("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig");
            fs::write(&path, json!({ "version_info": "1", "resources": [extension] }).to_string()).unwrap();
            let source = filter["config_discovery"]["config_source"].as_object_mut().expect("a source");
            assert!(source.remove("ads").is_some(), "Istio discovers by ADS");
            source.insert("path_config_source".to_owned(), json!({ "path": path }));
        }
    }
}

#[test]
fn envoy_accepts_header_mode() {
    proxy::assert_valid("istio-header-valid", |it| apply(it, Mode::Header, Discovery::Inline));
}

#[test]
fn envoy_accepts_body_mode() {
    proxy::assert_valid("istio-body-valid", |it| apply(it, Mode::Body, Discovery::Inline));
}

async fn steers(name: &str, mode: Mode) -> Result<()> {
    let dir = ScratchDir::new(&format!("{name}-discovery"))?;
    let files = dir.path().to_path_buf();
    proxy::assert_steers(name, mode, move |it| apply(it, mode, Discovery::Files(&files))).await?;
    dir.remove()
}

#[tokio::test]
async fn header_mode_steers() -> Result<()> {
    steers("istio-header", Mode::Header).await
}

#[tokio::test]
async fn body_mode_steers() -> Result<()> {
    steers("istio-body", Mode::Body).await
}

#[test]
fn the_destination_is_taken_from_the_header_behind_the_plugin() {
    for mode in [Mode::Header, Mode::Body] {
        let mut bootstrap = Bootstrap::shipped().unwrap();
        apply(&mut bootstrap, mode, Discovery::Inline).unwrap();
        let filters = proxy::http_filters(bootstrap.listener("warmroute").unwrap());
        let names: Vec<_> = filters.iter().map(|filter| filter["name"].as_str().unwrap()).collect();
        let plugin = if mode == Mode::Header { "inference.warmroute" } else { "warmroute" };
        assert_eq!(names[names.len() - 3..], [plugin, "envoy.filters.http.header_to_metadata", ROUTER]);
    }
}
