//! The ways for a request to take.

use std::sync::Arc;

use super::load::Target;
use super::place::{Place, Running};
use super::prompts::{Carrier, Dialect, cold, warm};

/// A way for a request to take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) place: Place,
    carrier: Carrier,
    /// Whether the prompt is one that no worker has cached.
    cold: bool,
}

/// All of them, in the order in which they take turns.
pub(super) const SUBJECTS: [Subject; 10] = [
    in_body("envoy", Place::PlainEnvoy),
    in_body("envoy_wasm_noop", Place::NoopFilter),
    Subject { carrier: Carrier::Hashes, ..in_body("warmroute_hashes", Place::Warmroute) },
    Subject { carrier: Carrier::Tokens, ..in_body("warmroute_header", Place::Warmroute) },
    in_body("warmroute_body", Place::Warmroute),
    Subject { cold: true, ..in_body("warmroute_body_cold", Place::Warmroute) },
    in_body("ext_proc_floor", Place::ExtProcFloor),
    in_body("vllm_router_cache_aware", Place::VllmRouterCacheAware),
    in_body("vllm_router_kv_aware", Place::VllmRouterKvAware),
    in_body("sglang_router", Place::SglangRouter),
];

/// The subject that the others stand on or beside.
pub(super) const BASELINE: &str = "envoy";

const fn in_body(name: &'static str, place: Place) -> Subject {
    Subject { name, place, carrier: Carrier::Body, cold: false }
}

// === impl Subject ===

impl Subject {
    /// The requests with prompts of a length.
    pub(super) fn target(&self, running: &Running, tokens: usize) -> Target {
        let prompts = if self.cold { cold(tokens) } else { warm(tokens) };
        // SGLang's router takes token IDs in its own dialect alone.
        let sglang = self.place == Place::SglangRouter;
        let dialect = if sglang { Dialect::Generate } else { Dialect::Completions };
        let requests = prompts.iter().map(|prompt| prompt.request(dialect, self.carrier));
        Target { address: running.address, requests: Arc::new(requests.collect()) }
    }

    /// Whether every request must be served by the worker that has its prompt cached.
    pub(super) fn must_hit(&self) -> bool {
        self.place.knows_holders() && !self.cold
    }
}
