//! Faults on demand, for the tests of what a dead VM costs. Built only with the feature `fault-injection`.

#![allow(clippy::panic, reason = "this is what it is for")]

use super::abi::{self, HeaderMap};

/// Panics on a request that asks for it.
pub(super) fn on_request() {
    if abi::header(HeaderMap::Request, "x-warmroute-fault").is_some_and(|fault| fault == b"panic") {
        panic!("a request asked for it");
    }
}

/// Panics on an answer to a call that asks for it.
pub(super) fn on_answer(body: &[u8]) {
    if body == b"warmroute-fault: panic" {
        panic!("an answer asked for it");
    }
}
