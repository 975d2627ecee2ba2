//! Envoy Gateway's manifests in a real Envoy: what Envoy Gateway makes of them, made here.

use anyhow::Result;
use serde_json::{Value, json};
use warmroute_e2e::{Bootstrap, workspace};

use crate::json_patch;
use crate::manifests;
use crate::proxy::{self, Generated, Mode};

const GATEWAY: &str = include_str!("envoy-gateway.yaml");

/// A gateway's proxy with the manifests of a mode.
fn apply(bootstrap: &mut Bootstrap, mode: Mode) -> Result<()> {
    let mut gateway = Generated::read(GATEWAY, bootstrap)?;
    let collector = proxy::load_assignment(bootstrap, "warmroute-collector")?;
    let file = if mode == Mode::Header { "gateway/header-mode.yaml" } else { "gateway/body-mode.yaml" };
    apply_client_traffic(&mut gateway, &spec("gateway/gateway.yaml", "ClientTrafficPolicy"));
    apply_backend_traffic(&mut gateway, &spec("gateway/backend-traffic.yaml", "BackendTrafficPolicy"));
    apply_extension(&mut gateway, &spec(file, "EnvoyExtensionPolicy"));
    if mode == Mode::Body {
        for patch in spec(file, "EnvoyPatchPolicy")["jsonPatches"].as_array().expect("a list") {
            assert_eq!(patch["type"], "type.googleapis.com/envoy.config.listener.v3.Listener");
            assert_eq!(patch["name"], gateway.listener["name"]);
            json_patch::apply(&mut gateway.listener, &patch["operation"]);
        }
    }
    gateway.put_into(bootstrap)?;
    let proxy = spec("gateway/gateway.yaml", "EnvoyProxy");
    for patch in proxy["bootstrap"]["jsonPatches"].as_array().expect("a list") {
        json_patch::apply(bootstrap.value_mut(), patch);
    }
    // The name of the Service does not resolve here.
    bootstrap.cluster("warmroute-collector")?["load_assignment"] = collector;
    Ok(())
}

fn spec(file: &str, kind: &str) -> Value {
    manifests::document(file, kind, "warmroute")["spec"].clone()
}

/// `internal/xds/translator/listener.go` in envoyproxy/gateway.
fn apply_client_traffic(gateway: &mut Generated, policy: &Value) {
    let removed = policy["headers"]["earlyRequestHeaders"]["remove"].as_array().expect("a list");
    let mutations: Vec<Value> = removed.iter().map(|name| json!({ "remove": name })).collect();
    let manager = proxy::connection_manager(&mut gateway.listener);
    manager["early_header_mutation_extensions"] = json!([{
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
            "mutations": mutations,
        },
    }]);
    manager["request_timeout"] = policy["timeout"]["http"]["requestReceivedTimeout"].clone();
    let limit = policy["connection"]["bufferLimit"].as_str().expect("a limit");
    gateway.listener["per_connection_buffer_limit_bytes"] = json!(bytes(limit));
}

/// A quantity of Kubernetes.
fn bytes(quantity: &str) -> u64 {
    let units = [("Ki", 10), ("Mi", 20)];
    let with_unit = |(unit, shift)| Some(quantity.strip_suffix(unit)?.parse::<u64>().ok()? << shift);
    units.into_iter().find_map(with_unit).unwrap_or_else(|| panic!("{quantity} is not in Ki or Mi"))
}

/// `internal/xds/translator/cluster.go` and `route.go` in envoyproxy/gateway.
fn apply_backend_traffic(gateway: &mut Generated, policy: &Value) {
    let balancing = &policy["loadBalancer"];
    assert_eq!(balancing["type"], "LeastRequest");
    let sources = &balancing["endpointOverride"]["extractFrom"];
    let cluster = &mut gateway.clusters[0];
    cluster["load_balancing_policy"] = json!({ "policies": [{ "typed_extension_config": {
        "name": "envoy.load_balancing_policies.override_host",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
            "override_host_sources": sources,
            "fallback_policy": { "policies": [{ "typed_extension_config": {
                "name": "envoy.load_balancing_policies.least_request",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
                },
            } }] },
        },
    } }] });
    let breaker = &policy["circuitBreaker"];
    cluster["circuit_breakers"]["thresholds"] = json!([{
        "max_connections": breaker["maxConnections"],
        "max_pending_requests": breaker["maxPendingRequests"],
        "max_requests": breaker["maxParallelRequests"],
        "max_retries": breaker["maxParallelRetries"],
    }]);
    let check = &policy["healthCheck"]["active"];
    cluster["health_checks"] = json!([{
        "timeout": check["timeout"],
        "interval": check["interval"],
        "unhealthy_threshold": check["unhealthyThreshold"],
        "healthy_threshold": check["healthyThreshold"],
        "http_health_check": { "path": check["http"]["path"], "host": "*" },
    }]);
    cluster["connect_timeout"] = policy["timeout"]["tcp"]["connectTimeout"].clone();

    let retry = &policy["retry"];
    let triggers: Vec<_> = retry["retryOn"]["triggers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    let seconds = |text: &Value| {
        let millis: u64 = text.as_str().and_then(|text| text.strip_suffix("ms")).unwrap().parse().unwrap();
        format!("0.{millis:03}s")
    };
    let back_off = &retry["perRetry"]["backOff"];
    route(gateway)["route"]["retry_policy"] = json!({
        "retry_on": triggers.join(","),
        "retriable_status_codes": retry["retryOn"]["httpStatusCodes"],
        "num_retries": retry["numRetries"],
        "retry_back_off": {
            "base_interval": seconds(&back_off["baseInterval"]),
            "max_interval": seconds(&back_off["maxInterval"]),
        },
        "retry_host_predicate": [{
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
            },
        }],
        "host_selection_retry_max_attempts": 5,
    });
}

/// `internal/xds/translator/wasm.go` in envoyproxy/gateway, but for the code, which comes by HTTP from Envoy Gateway
/// itself there.
fn apply_extension(gateway: &mut Generated, policy: &Value) {
    let plugin = &policy["wasm"][0];
    let name = "envoyextensionpolicy/inference/warmroute/wasm/0";
    let filter = format!("envoy.filters.http.wasm/{name}");
    proxy::http_filters(&mut gateway.listener).insert(
        0,
        json!({
            "name": filter,
            "disabled": true,
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
                "config": {
                    "name": plugin["name"],
                    "root_id": plugin["rootID"],
                    "fail_open": plugin["failOpen"],
                    "configuration": {
                        "@type": "type.googleapis.com/google.protobuf.StringValue",
                        "value": plugin["config"].to_string(),
                    },
                    "vm_config": {
                        "vm_id": name,
                        "runtime": "envoy.wasm.runtime.v8",
                        "code": { "local": { "filename": workspace::plugin().unwrap() } },
                    },
                },
            },
        }),
    );
    let enabled = json!({ "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {} });
    route(gateway)["typed_per_filter_config"][filter] = enabled;
}

fn route(gateway: &mut Generated) -> &mut Value {
    &mut proxy::connection_manager(&mut gateway.listener)["route_config"]["virtual_hosts"][0]["routes"][0]
}

#[test]
fn envoy_accepts_header_mode() {
    proxy::assert_valid("gateway-header-valid", |it| apply(it, Mode::Header));
}

#[test]
fn envoy_accepts_body_mode() {
    proxy::assert_valid("gateway-body-valid", |it| apply(it, Mode::Body));
}

#[tokio::test]
async fn header_mode_steers() -> Result<()> {
    proxy::assert_steers("gateway-header", Mode::Header, |it| apply(it, Mode::Header)).await
}

#[tokio::test]
async fn body_mode_steers() -> Result<()> {
    proxy::assert_steers("gateway-body", Mode::Body, |it| apply(it, Mode::Body)).await
}

#[test]
fn the_patch_sets_the_flag_on_the_policys_plugin() {
    let mut bootstrap = Bootstrap::shipped().unwrap();
    apply(&mut bootstrap, Mode::Body).unwrap();
    let filters = proxy::http_filters(bootstrap.listener("warmroute").unwrap());
    assert_eq!(filters[0]["typed_config"]["config"]["allow_on_headers_stop_iteration"], true);
}

/// The statistics of a gateway have the labels of the plain Envoy's.
#[test]
fn the_statistics_tags_are_those_of_the_shipped_configuration() {
    let mut shipped = Bootstrap::shipped().unwrap();
    let tags = shipped.value_mut()["stats_config"]["stats_tags"].take();
    let proxy = spec("gateway/gateway.yaml", "EnvoyProxy");
    let added: Vec<_> = proxy["bootstrap"]["jsonPatches"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|patch| patch["path"] == "/stats_config/stats_tags/-")
        .map(|patch| patch["value"].clone())
        .collect();
    assert_eq!(Value::Array(added), tags);
}
