//! The collector: listens to the engines' KV-cache events, keeps the exact index and publishes it to every Envoy.
//!
//! ```text
//! frames --wire--> events --engine--> updates --pool (index)--> pages --feed--> Envoys
//! ```
//!
//! * [`warmroute_wire`] reads what engines send, and knows what to apply in what order.
//! * [`engine`] listens to one rank of one engine.
//! * [`discovery`] finds workers that are not written in the configuration, and endpoints that are not.
//! * [`gauges`] asks each engine for its load.
//! * [`health`] asks each worker whether it serves.
//! * [`pool`] owns the index over the caches of the workers that serve the same model.
//! * [`prompts`] makes the blocks of requests that carry text.
//! * [`feed`] answers the publishers in the Envoys.
//! * [`fleet`] tells each of them what all others have in flight.
//! * [`server`] puts it behind HTTP, with health and [`metrics`]; [`config`] says what there is.
//! * [`inspect`] is what people may ask of a pool.
//! * [`replay`] feeds recordings through the same decoding and index.
#![forbid(unsafe_code)]

pub mod config;
pub mod discovery;
pub mod engine;
pub mod feed;
pub mod fleet;
pub mod gauges;
pub mod health;
mod http;
pub mod inspect;
pub mod metrics;
pub mod pool;
pub mod prompts;
pub mod replay;
pub mod server;
pub mod snapshot;
