//! The decision about one request: where to, or why not.

mod inquiry;

use std::fmt;
use std::net::SocketAddr;

use warmroute_routing::page::Slot;

use crate::prompt::PromptError;
use crate::trust::Prediction;

pub use inquiry::{Asked, Bounds, Inquiry, Surroundings};

/// Why a request is left to the proxy's own choice. Each has a label that stays as it is: dashboards rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No pool takes requests of the route's cluster.
    NoPool,
    /// The request has no body and no prompt header.
    NoBody,
    /// The body is not JSON by its content type.
    ContentType,
    /// The body is compressed.
    Compressed,
    /// The request upgrades its connection, or is CONNECT.
    Upgrade,
    /// The request has no prompt header, and bodies are not read by configuration.
    BodyNotRead,
    /// The request was held for its body, but Envoy does not show bodies to the plugin.
    BodyNotSeen,
    /// No index has been published yet.
    NoIndex,
    /// The index has not been refreshed for too long.
    StaleIndex,
    /// The prompt is shorter than a block: there is nothing to look up.
    ShortPrompt,
    /// No worker holds the prompt's first block: nothing is gained by naming one. Where recent routes count, the prompt goes
    /// by load instead, unless its namespace is one that nobody has cached anything of.
    Cold,
    /// The pool has no worker that may be chosen.
    NoWorkers,
    /// None of the endpoints that the request may go to, by its subset, may be chosen.
    Subset,
    /// The prompt is text, in a body that is longer than may be held.
    BodyTooLarge,
    /// The prompt is text, and the collector has not told its blocks in time.
    CollectorLate,
    /// The prompt is text, and the collector cannot be reached, has too much to do, or has failed.
    CollectorUnavailable,
    /// The prompt is text, and the collector does not tokenize it: its pool has no `prompts`, or it is not understood.
    CollectorRefused,
    /// The prompt is text, and the collector's answer is not in its format, or in other blocks than the index.
    CollectorMalformed,
    /// The prompt's namespace cannot be told: a salt that is no short text, or a key that only the engine understands.
    UnknownNamespace,
    /// The prompt cannot be read.
    Prompt(PromptError),
}

/// What was decided about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It goes to these workers.
    Route(Route),
    /// It is left to the proxy.
    Fallback(Fallback),
}

/// What a choice of workers rests on. Each has a label that stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// What the index has for the first worker.
    Warm,
    /// What was just routed to the first worker, beyond what the index has.
    Recent,
    /// Load alone: the first worker has nothing of the prompt.
    Cold,
}

/// The workers that a request goes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The endpoints, best first, each once; at least one.
    pub destinations: Vec<SocketAddr>,
    /// The first worker's rank, which every endpoint has.
    pub rank: u32,
    /// Whether the pool has ranks at all, so that the rank must be named.
    pub ranked: bool,
    /// The first worker's place in the index.
    pub slot: Slot,
    /// What the choice rests on.
    pub basis: Basis,
    /// Blocks of the prompt that the first worker holds, as far as was looked.
    pub cached_blocks: u32,
    /// How many of them the index says that it holds; the others were just routed to it.
    pub published_blocks: u32,
    /// What the first worker should say that it had cached; none where that rests on what was just routed.
    pub prediction: Option<Prediction>,
    /// Tokens in a block.
    pub block_size: u32,
    /// Tokens of the prompt that the first worker has to compute.
    pub uncached_tokens: u64,
    /// What the lookup took.
    pub lookup: LookupFigures,
}

/// A request that is left to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Why.
    pub reason: Reason,
    /// What the lookup took, if there was one.
    pub lookup: Option<LookupFigures>,
}

/// What a lookup was about, and what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupFigures {
    /// Full blocks of the prompt; if it was decided before its end, as many as were expected.
    pub prompt_blocks: u32,
    /// Its tokens, likewise.
    pub prompt_tokens: u64,
    /// Whether the prompt was there to its end. If not, a worker may hold more of it than was seen.
    pub whole: bool,
    /// Pages that were read.
    pub reads: u32,
    /// The index's age, in microseconds.
    pub index_age_us: u64,
}

// === impl Reason ===

impl Reason {
    /// Every reason, for those who set up a counter for each.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [
            Self::NoPool,
            Self::NoBody,
            Self::ContentType,
            Self::Compressed,
            Self::Upgrade,
            Self::BodyNotRead,
            Self::BodyNotSeen,
            Self::NoIndex,
            Self::StaleIndex,
            Self::ShortPrompt,
            Self::Cold,
            Self::NoWorkers,
            Self::Subset,
            Self::BodyTooLarge,
            Self::CollectorLate,
            Self::CollectorUnavailable,
            Self::CollectorRefused,
            Self::CollectorMalformed,
            Self::UnknownNamespace,
        ];
        own.into_iter().chain(PromptError::ALL.map(Self::Prompt))
    }

    /// The reason's label in metrics and in the decision header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoPool => "no_pool",
            Self::NoBody => "no_body",
            Self::ContentType => "content_type",
            Self::Compressed => "compressed",
            Self::Upgrade => "upgrade",
            Self::BodyNotRead => "body_not_read",
            Self::BodyNotSeen => "body_not_seen",
            Self::NoIndex => "no_index",
            Self::StaleIndex => "stale_index",
            Self::ShortPrompt => "short_prompt",
            Self::Cold => "cold",
            Self::NoWorkers => "no_workers",
            Self::Subset => "subset",
            Self::BodyTooLarge => "body_too_large",
            Self::CollectorLate => "collector_late",
            Self::CollectorUnavailable => "collector_unavailable",
            Self::CollectorRefused => "collector_refused",
            Self::CollectorMalformed => "collector_malformed",
            Self::UnknownNamespace => "unknown_namespace",
            Self::Prompt(error) => error.as_str(),
        }
    }
}

// === impl Basis ===

impl Basis {
    /// The basis's label in metrics, where the request is not a fallback.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Recent => "recent",
            Self::Cold => "cold",
        }
    }
}

// === impl Decision ===

impl Decision {
    /// A request that is left to the proxy before anything was looked up.
    pub fn fallback(reason: Reason) -> Self {
        Self::Fallback(Fallback { reason, lookup: None })
    }

    /// What the lookup took, if there was one.
    pub fn lookup(&self) -> Option<LookupFigures> {
        match self {
            Self::Route(route) => Some(route.lookup),
            Self::Fallback(fallback) => fallback.lookup,
        }
    }
}

/// As the decision header says it.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(route) => {
                let (first, rank, cached) = (route.destinations.first(), route.rank, route.cached_blocks);
                let or_more = if route.lookup.whole { "" } else { "+" };
                f.write_str("worker=")?;
                first.map_or(Ok(()), |address| address.fmt(f))?;
                write!(f, " rank={rank} cached_blocks={cached}{or_more}")?;
            }
            Self::Fallback(fallback) => write!(f, "reason={}", fallback.reason.as_str())?,
        }
        self.lookup().map_or(Ok(()), |lookup| {
            let about = if lookup.whole { "" } else { "~" };
            write!(f, " prompt_blocks={about}{} page_reads={}", lookup.prompt_blocks, lookup.reads)
        })
    }
}
