//! The Envoys: `envoy/envoy.yaml` as it is shipped, which differ in one filter alone.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_e2e::Bootstrap;
use warmroute_e2e::bootstrap::Publisher;
use warmroute_e2e::workspace;

use super::place::Surroundings;

/// Envoy's largest: 100,000 tokens in a header are 533 KB.
const MAX_HEADERS_KB: u32 = 8192;

/// What all of them are given. The health checks go, since 128 of them would be measured with every request.
fn common(around: &Surroundings<'_>) -> Result<Bootstrap> {
    let mut bootstrap = Bootstrap::shipped()?;
    bootstrap.set_plugin(&workspace::plugin()?)?;
    bootstrap.set_endpoints("warmroute-collector", &[around.feed])?;
    for cluster in ["workers", "workers-plain"] {
        bootstrap.set_endpoints(cluster, around.workers)?;
        bootstrap
            .cluster(cluster)?
            .as_object_mut()
            .context("a cluster is no object")?
            .remove("health_checks");
    }
    bootstrap.connection_manager("warmroute")?["max_request_headers_kb"] = json!(MAX_HEADERS_KB);
    Ok(bootstrap)
}

/// Without a filter of anybody's.
pub(super) fn plain(around: &Surroundings<'_>) -> Result<Bootstrap> {
    let mut bootstrap = common(around)?;
    bootstrap.remove_plugin()?;
    Ok(bootstrap)
}

/// With a filter that does nothing.
pub(super) fn noop(around: &Surroundings<'_>) -> Result<Bootstrap> {
    let mut bootstrap = common(around)?;
    bootstrap.set_publisher(Publisher::Absent)?;
    bootstrap.set_plugin(&around.built.noop)?;
    Ok(bootstrap)
}

/// With warmroute.
pub(super) fn warmroute(around: &Surroundings<'_>) -> Result<Bootstrap> {
    let mut bootstrap = common(around)?;
    bootstrap.patch_filter(&json!({ "trust_block_hashes": true }))?;
    Ok(bootstrap)
}

/// With an external processor.
pub(super) fn ext_proc(around: &Surroundings<'_>, processor: SocketAddr) -> Result<Bootstrap> {
    let mut bootstrap = plain(around)?;
    let filters = bootstrap.connection_manager("warmroute")?.pointer_mut("/http_filters");
    let filters = filters.and_then(Value::as_array_mut).context("http_filters is no list")?;
    filters.insert(
        0,
        json!({
            "name": "envoy.filters.http.ext_proc",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
                "grpc_service": { "envoy_grpc": { "cluster_name": "ext-proc" } },
                "message_timeout": "10s",
                "processing_mode": {
                    "request_header_mode": "SEND",
                    "request_body_mode": "FULL_DUPLEX_STREAMED",
                    "request_trailer_mode": "SEND",
                    "response_header_mode": "SKIP",
                    "response_body_mode": "NONE",
                    "response_trailer_mode": "SKIP",
                },
            },
        }),
    );
    let address = json!({ "address": processor.ip().to_string(), "port_value": processor.port() });
    let clusters = bootstrap.value_mut().pointer_mut("/static_resources/clusters");
    clusters.and_then(Value::as_array_mut).context("the clusters are no list")?.push(json!({
        "name": "ext-proc",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        },
        "load_assignment": {
            "cluster_name": "ext-proc",
            "endpoints": [{
                "lb_endpoints": [{ "endpoint": { "address": { "socket_address": address } } }],
            }],
        },
    }));
    Ok(bootstrap)
}
