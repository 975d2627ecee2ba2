//! What one payload says.

use warmroute_index::event::Event;

/// The events of one payload, in order, and what had to be left out.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The events for the index.
    pub events: Vec<Event>,
    /// Events that are whole but not for this index.
    pub skipped: Vec<Skipped>,
    /// Events that could not be read.
    pub bad: Vec<BadEvent>,
    /// The engine is of a release whose events do not tell what is cached. There are no events then.
    pub unsupported: Option<Unsupported>,
}

/// A release that cannot be indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unsupported {
    /// SGLang before 0.5.6 names a block by its own tokens alone, and does not tell a node's parent.
    #[error("the engine is SGLang before 0.5.6, whose block hashes do not tell what comes before a block")]
    UnchainedHashes,
}

/// Why an event that could be read is not for the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Skipped {
    /// A type of event that this release does not know.
    UnknownType,
    /// A group of layers whose cache does not keep every token of a prefix (sliding window, state space).
    OtherAttention,
    /// Its tokens are not those of its blocks: a list of only some blocks of the tokens.
    Misaligned,
    /// An adapter beyond those that can be kept apart.
    TooManyAdapters,
    /// A block that is not full yet, which TensorRT-LLM tells of where it is polled.
    Partial,
}

/// Why an event could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    /// The payload ends inside the event, or holds a byte that is no msgpack: what follows is lost with it.
    #[error("payload is cut or damaged inside an event")]
    Cut,
    /// It and all that follow are more than one payload may hold.
    #[error("payload holds more events than are read of one")]
    TooMany,
    /// No array and no map, or without a type.
    #[error("event has no type")]
    Untyped,
    /// A field is missing or of another type.
    #[error("event of type {kind}: {message}")]
    Field {
        /// The event's type.
        kind: &'static str,
        /// What is wrong.
        message: String,
    },
}

/// A payload that is no batch of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("payload is not a batch of events: {0}")]
pub struct PayloadError(pub(crate) &'static str);

// === impl Batch ===

impl Batch {
    /// How many events the payload held, read or not; 0 where the engine is not supported.
    pub fn len(&self) -> usize {
        self.events.len() + self.skipped.len() + self.bad.len()
    }

    /// Whether the payload held no event.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// === impl Skipped ===

impl Skipped {
    /// The reason's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownType => "unknown_type",
            Self::OtherAttention => "other_attention",
            Self::Misaligned => "misaligned",
            Self::TooManyAdapters => "too_many_adapters",
            Self::Partial => "partial",
        }
    }
}

// === impl Unsupported ===

impl Unsupported {
    /// The reason's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnchainedHashes => "unsupported",
        }
    }
}

// === impl BadEvent ===

impl BadEvent {
    /// The reason's name in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::TooMany => "too_many",
            Self::Untyped => "untyped",
            Self::Field { .. } => "field",
        }
    }
}
