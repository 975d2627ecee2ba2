//! A simulated inference engine, to test and load a router without a GPU.
//!
//! It speaks what a vLLM replica speaks: the OpenAI completions API, KV events over ZMQ, load metrics. It caches under
//! vLLM's rules, and it takes time as a GPU would. It computes nothing.
//!
//! ```text
//!   http --> engine (clock, one lock) --> scheduler (pure) --> cache (pure)
//!                      |
//!                      '--> events (PUB, ROUTER)
//! ```
//!
//! # The time model
//!
//! Prefill is compute-bound: a GPU that works on one prompt has nothing left for another. So each engine has one prefill
//! device, through which requests pass one at a time, in order. A prompt holds it for
//! `prefill_us_per_token` x (prompt tokens - cached tokens). The first output token comes `base_ms` after that; this
//! part (scheduling, sampling, the way back) overlaps with other requests' work. Each further token comes
//! `decode_ms_per_token` after the one before, for all running requests side by side: decode is bound by memory
//! bandwidth, and a batch costs about as much as one.
//!
//! ```text
//!   time to first token = wait for slot, device and blocks + prefill of the uncached tokens + base
//!   time to last token  = time to first token + (output tokens - 1) x decode
//! ```
//!
//! So a router that sends too much to one engine makes a queue there, and one that misses a warm cache pays for it in
//! full. What is left out: decodes are not slowed down by prefills, prefill time is linear in tokens (attention is not),
//! and prefills are not chunked.
//!
//! # Where it differs from vLLM
//!
//! * All of `--num-blocks` can be used; vLLM keeps one block for itself.
//! * A request always generates `max_tokens` tokens.
//! * A request waits until the prefill device is free, and counts as waiting; vLLM's chunked prefill would start it
//!   earlier and share the device.

pub mod cache;
mod config;
mod engine;
pub mod events;
mod http;
mod output;
pub mod scheduler;
mod server;

pub use crate::config::{Config, EventFormat, HashFormat};
pub use crate::server::{Addresses, Server};
