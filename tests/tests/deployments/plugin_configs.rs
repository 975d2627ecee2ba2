//! The plugin's own parser accepts every configuration that a manifest holds, and each says what its mode needs.

use serde_json::Value;
use warmroute::config::{Config, FilterConfig, Role};

use crate::manifests;

/// The pool's name in the collector's `ConfigMap`.
const POOL: &str = "llama";

/// A filter's configuration and where it stands.
struct Found {
    file: String,
    config: FilterConfig,
}

fn filter(file: &str, json: &str) -> FilterConfig {
    match Config::parse(json.as_bytes()) {
        Ok(Config { role: Role::Filter(config) }) => config,
        Ok(_) => panic!("{file}: no filter"),
        Err(error) => panic!("{file}: {error}"),
    }
}

/// Wherever one may stand.
fn all() -> Vec<Found> {
    let mut found = Vec::new();
    for (file, document) in manifests::all() {
        let mut add = |json: String| found.push(Found { config: filter(&file, &json), file: file.clone() });
        let spec = &document["spec"];
        match document["kind"].as_str() {
            // Istio and Envoy Gateway pass the object on as JSON.
            Some("WasmPlugin") => add(spec["pluginConfig"].to_string()),
            Some("EnvoyExtensionPolicy") => {
                spec["wasm"].as_array().unwrap().iter().for_each(|plugin| add(plugin["config"].to_string()));
            }
            Some("EnvoyFilter") => {
                for patch in spec["configPatches"].as_array().unwrap() {
                    let value = patch.pointer("/patch/value/typed_config/config/configuration/value");
                    if let Some(json) = value {
                        add(json.as_str().expect("a string").to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn every_configuration_is_accepted_and_fits_its_mode() {
    let found = all();
    let mut files: Vec<_> = found.iter().map(|found| found.file.as_str()).collect();
    files.sort_unstable();
    let expected = [
        "gateway/body-mode.yaml",
        "gateway/header-mode.yaml",
        "istio/envoyfilter.yaml",
        "istio/wasmplugin.yaml",
    ];
    assert_eq!(files, expected);
    let collector = manifests::document("kubernetes/collector.yaml", "ConfigMap", "warmroute-collector");
    assert!(collector["data"]["collector.yaml"].as_str().unwrap().contains(&format!("name: {POOL} ")));
    for Found { file, config } in found {
        let pools: Vec<_> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
        assert_eq!(pools, [POOL], "{file}");
        // Where no body can be waited for, none may be.
        let header_mode = file.ends_with("wasmplugin.yaml") || file.ends_with("header-mode.yaml");
        assert_eq!(config.read_body, !header_mode, "{file}");
        // No bootstrap extension publishes there.
        assert!(config.publisher.is_some(), "{file}: nobody fetches the index");
    }
}

#[test]
fn every_destination_header_is_the_one_that_is_steered_by_and_removed_from_clients_requests() {
    let steering = manifests::documents("istio/steering.yaml")[0].to_string();
    let clients = manifests::document("gateway/gateway.yaml", "ClientTrafficPolicy", "warmroute");
    let removed = &clients["spec"]["headers"]["earlyRequestHeaders"]["remove"];
    let backend = manifests::document("gateway/backend-traffic.yaml", "BackendTrafficPolicy", "warmroute");
    let taken = &backend["spec"]["loadBalancer"]["endpointOverride"]["extractFrom"];
    for Found { file, config } in all() {
        let header = Value::String(config.destination_header.clone());
        if file.starts_with("gateway/") {
            assert_eq!(removed, &serde_json::json!([header]), "{file}");
            assert_eq!(taken, &serde_json::json!([{ "header": header }]), "{file}");
        } else {
            assert!(steering.contains(&format!(r#""remove":{header}"#)), "{file}");
            assert!(steering.contains(&format!(r#""header":{header}"#)), "{file}");
        }
    }
}

/// As Istio names clusters (`pilot/pkg/model/push_context.go`, `BuildSubsetKey`).
#[test]
fn every_cluster_is_one_that_the_control_plane_makes() {
    let istio = |service: &str, port: u16| format!("outbound|{port}||{service}.inference.svc.cluster.local");
    let proxy = manifests::document("gateway/gateway.yaml", "EnvoyProxy", "warmroute");
    let own = &proxy["spec"]["bootstrap"]["jsonPatches"][0]["value"]["name"];
    for Found { file, config } in all() {
        let publisher = config.publisher.expect("a publisher");
        let clusters: Vec<_> = config.pools.iter().flat_map(|pool| &pool.clusters).collect();
        if file.starts_with("istio/") {
            assert_eq!(publisher.cluster, istio("warmroute-collector", 9400), "{file}");
            assert_eq!(clusters, [&istio("vllm", 8000)], "{file}");
        } else {
            assert_eq!(own, &Value::String(publisher.cluster), "{file}");
            assert!(clusters.is_empty(), "{file}");
        }
    }
}
