//! The collector: listens to the engines' KV-cache events, keeps the exact index and publishes it to every Envoy.
#![forbid(unsafe_code)]

pub mod replay;
pub mod wire;
