//! The engine as its users see it: real HTTP, real ZMQ, in one process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has to panic, in its helpers too"
)]

mod cancel;
mod completions;
mod events;
mod generate;
mod lifecycle;
mod load;
mod program;
mod recorded;
mod replay;
mod support;
