//! The ways to deploy are what they say they are: `envoy/docker-compose.yaml`, and the manifests for Istio and for Envoy
//! Gateway.
//!
//! There is no container runtime and no cluster here. So each file is held against everything that can be run: the
//! programs' own flags and configuration parsers, schemas of the kinds, and a real Envoy with the configuration that the
//! control plane would make of the manifests.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a manifest that is wrong fails"
)]

mod compose;
mod envoy_gateway;
mod istio;
mod json_patch;
mod manifests;
mod plugin_configs;
mod proxy;
mod schema;
