//! warmroute's proxy-wasm plugin: names, for each LLM request, the worker whose KV cache is warm for its prompt.
//!
//! One module, two roles. As an HTTP filter it reads a request's prompt, looks its blocks up in the index that lies in
//! the proxy's shared data, chooses a worker and names it in the destination header. As a publisher it fetches that
//! index from the collector.
//!
//! ```text
//! request --prompt--> tokens --decision (index, ledger)--> workers, best first --request--> destination header
//! collector --publisher (lease)--> shared: pages, published pool --index--> the decision
//! ```
//!
//! Whatever cannot be decided is left to the proxy's own load balancing, with a [`decision::Reason`].
//!
//! Only the `proxy` module, which is built for WebAssembly alone, speaks to Envoy. Everything else knows a proxy as the
//! traits of [`host`] and runs natively in the tests.

pub mod config;
pub mod decision;
pub mod failures;
pub mod fleet;
pub mod host;
pub mod index;
pub mod ledger;
pub mod metrics;
pub mod prompt;
#[cfg(target_arch = "wasm32")]
mod proxy;
pub mod publisher;
pub mod recent;
pub mod request;
pub mod sessions;
pub mod shared;
pub mod trust;
pub mod wishes;
