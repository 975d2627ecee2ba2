//! Wire formats: from the frames of an engine to events of the index.
//!
//! ```text
//! frames --Message::parse--> sequence number, payload --Adapter::decode--> Batch of events
//! ```
//!
//! One module per wire format, all of them behind [`Adapter`]. An adapter keeps what an engine says only once, so
//! there is one for each rank of each engine. What an adapter cannot read costs no more than itself: a payload that is
//! no batch is an error, an event that is no event is counted in its batch.

mod batch;
mod frames;
mod medium;
mod msgpack;
mod vllm;

pub use batch::{BadEvent, Batch, PayloadError, Skipped};
pub use frames::{FrameError, Message};

/// Reads the payloads of one rank of one engine.
#[derive(Clone, Debug)]
pub enum Adapter {
    /// vLLM, and whatever speaks its format.
    Vllm(vllm::Decoder),
}

// === impl Adapter ===

impl Adapter {
    /// An adapter for vLLM's format, 0.9 to 0.33.
    pub fn vllm() -> Self {
        Self::Vllm(vllm::Decoder::default())
    }

    /// Reads one payload.
    ///
    /// # Errors
    ///
    /// The payload is no batch of events at all.
    pub fn decode(&mut self, payload: &[u8]) -> Result<Batch, PayloadError> {
        match self {
            Self::Vllm(decoder) => decoder.decode(payload),
        }
    }

    /// Forgets what the engine has said so far: another process answers now.
    pub fn reset(&mut self) {
        match self {
            Self::Vllm(decoder) => decoder.reset(),
        }
    }
}
