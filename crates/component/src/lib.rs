//! The rules of warmroute as a WebAssembly component: what [`warmroute_routing`] and [`warmroute_index`] do, behind the
//! contract in `wit/`, for hosts that are not Envoy.
//!
//! ```text
//! wit/hashing.wit       hashing        tokens in, hashes out
//! wit/prefix-index.wit  prefix_index   engine events in, who holds how much of a prompt out
//! wit/router.wit        router         the choice of a worker, and the books of what each has in hand
//! wit/events.wit        events         an engine's messages, in any order, into the index
//! ```
//!
//! The modules are the contract's interfaces. Their types and traits come from `wit/` and compile natively too, so that
//! everything but the crossing itself is tested without a host. No rule lives here: only reading what a host passes,
//! and the books. Nothing imports from the host, and nothing that it passes makes the component trap.

mod convert;
mod events;
mod hashing;
mod prefix_index;
mod router;
mod tokens;

/// What `wit/` declares, as Rust types and traits.
#[allow(missing_docs, unsafe_code, clippy::all, reason = "generated from wit/, where the documentation is")]
pub mod bindings {
    wit_bindgen::generate!({ path: "../../wit", world: "warmroute", additional_derives: [PartialEq] });
}

pub use events::Subscription;
pub use prefix_index::Index;
pub use router::Router;

/// The component.
#[derive(Debug)]
pub struct Component;

#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, reason = "generated: the functions that a host calls")]
mod exports {
    use super::Component;

    super::bindings::export!(Component with_types_in super::bindings);
}
