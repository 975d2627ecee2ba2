//! Wire formats: from the frames of an engine to events of the index, and the order of them. No I/O and no clock.
//!
//! ```text
//! frames --Message::parse--> sequence number, payload --Adapter::decode--> Batch of events
//! ```
//!
//! The engines share one family of formats (`events` reads it) and differ in what the fields mean: one module for each
//! (`vllm`, `sglang`, `trtllm`, `llmd_sim`), all of them behind [`Adapter`]. An adapter keeps what an engine says
//! only once, so there is one for each rank of each engine. What an adapter cannot read costs no more than itself: a
//! payload that is no batch is an error, an event that is no event is counted in its batch.
#![forbid(unsafe_code)]

mod batch;
mod engine;
mod events;
mod frames;
mod llmd_sim;
mod medium;
mod msgpack;
mod python_hash;
pub mod sequence;
mod sglang;
#[cfg(test)]
mod testing;
mod topic;
pub mod trtllm;
mod vllm;

pub use batch::{BadEvent, Batch, PayloadError, Skipped, Unsupported};
pub use engine::Engine;
pub use frames::{FrameError, Message};
pub use topic::worker_of_topic;

/// Reads the payloads of one rank of one engine.
#[derive(Clone, Debug)]
pub struct Adapter(Inner);

#[derive(Clone, Debug)]
enum Inner {
    Vllm(vllm::Dialect),
    Sglang(sglang::Dialect),
    TrtLlm(trtllm::Dialect),
    LlmdSim(llmd_sim::Dialect),
}

// === impl Adapter ===

impl Adapter {
    /// An adapter for an engine's format.
    pub fn new(engine: Engine) -> Self {
        Self(match engine {
            Engine::Vllm => Inner::Vllm(vllm::Dialect::default()),
            Engine::Sglang => Inner::Sglang(sglang::Dialect::default()),
            Engine::TrtLlm => Inner::TrtLlm(trtllm::Dialect),
            Engine::LlmdSim => Inner::LlmdSim(llmd_sim::Dialect::default()),
        })
    }

    /// An adapter for vLLM's format, 0.9 to 0.33.
    pub fn vllm() -> Self {
        Self::new(Engine::Vllm)
    }

    /// Reads one payload.
    ///
    /// # Errors
    ///
    /// The payload is no batch of events at all.
    pub fn decode(&mut self, payload: &[u8]) -> Result<Batch, PayloadError> {
        match &mut self.0 {
            Inner::Vllm(dialect) => events::decode(payload, dialect),
            Inner::Sglang(dialect) => events::decode(payload, dialect),
            Inner::TrtLlm(dialect) => events::decode(payload, dialect),
            Inner::LlmdSim(dialect) => events::decode(payload, dialect),
        }
    }

    /// Forgets what the engine has said so far: another process answers now.
    pub fn reset(&mut self) {
        *self = Self::new(self.engine());
    }

    fn engine(&self) -> Engine {
        match &self.0 {
            Inner::Vllm(_) => Engine::Vllm,
            Inner::Sglang(_) => Engine::Sglang,
            Inner::TrtLlm(_) => Engine::TrtLlm,
            Inner::LlmdSim(_) => Engine::LlmdSim,
        }
    }
}
