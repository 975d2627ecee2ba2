//! The publishers of one root context, one for each pool.

use std::hash::{BuildHasher, RandomState};

use super::host::Envoy;
use crate::config::PublisherConfig;
use crate::host::{CallAnswer, CallId};
use crate::publisher::Publisher;

#[derive(Debug, Default)]
pub(super) struct Publishers(Vec<Publisher>);

// === impl Publishers ===

impl Publishers {
    pub(super) fn new<'a>(
        pools: impl Iterator<Item = &'a str>,
        config: &PublisherConfig,
        singleton: bool,
    ) -> Self {
        Self(pools.map(|pool| Publisher::new(pool, config, singleton, random(), &Envoy)).collect())
    }

    pub(super) fn tick(&mut self) {
        self.0.iter_mut().for_each(|publisher| publisher.tick(&Envoy));
    }

    pub(super) fn answered(&mut self, call: CallId, answer: &CallAnswer) {
        self.0.iter_mut().for_each(|publisher| publisher.answered(&Envoy, call, answer));
    }
}

/// A number that no other VM draws: the standard library seeds its hashers from the host's randomness.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0u64)
}
