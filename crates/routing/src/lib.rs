//! The rules of warmroute, free of any proxy, clock or I/O: token blocks and their hashes, the published page and
//! pool formats, the longest-prefix lookup, and the choice of a worker.
//!
//! Data flows one way through the modules:
//!
//! ```text
//! tokens --hash--> sequence hashes --lookup (page, pool)--> depths per worker --choose--> workers, best first
//! ```
//!
//! Everything here runs natively, inside Envoy and in a WebAssembly component without a change. Time, randomness and
//! storage enter as arguments.
#![forbid(unsafe_code)]

pub mod bytes;
pub mod choose;
pub mod feed;
pub mod hash;
pub mod loads;
pub mod lookup;
pub mod page;
pub mod pool;
pub mod progress;
pub mod prompt_blocks;
mod tier;

pub use tier::Tier;
