//! The decision about one request: where to, or why not.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

use warmroute_routing::choose::{Choice, Limits, LongestPrefix, Prompt, Question, Selection, select};
use warmroute_routing::hash::{SequenceHash, sequence_hashes};

use crate::host::Host;
use crate::index::{IndexReader, Snapshot};
use crate::ledger::Ledger;
use crate::prompt::PromptError;

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
    /// No index has been published yet.
    NoIndex,
    /// The index has not been refreshed for too long.
    StaleIndex,
    /// The prompt is shorter than a block: there is nothing to look up.
    ShortPrompt,
    /// No worker holds the prompt's first block: nothing is gained by naming one.
    Cold,
    /// The pool has no worker that may be chosen.
    NoWorkers,
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

/// The workers that a request goes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The endpoints, best first, each once; at least one.
    pub destinations: Vec<SocketAddr>,
    /// The first endpoint's rank.
    pub rank: u32,
    /// Blocks of the prompt that the first worker holds.
    pub cached_blocks: u32,
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
    /// Full blocks of the prompt.
    pub prompt_blocks: u32,
    /// Pages that were read.
    pub reads: u32,
    /// The index's age, in microseconds.
    pub index_age_us: u64,
}

/// What is known of a request's prompt, from whichever source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptSource {
    /// Block hashes, from a hop before that is trusted to have computed them.
    Hashes(Vec<SequenceHash>),
    /// Token IDs, and what makes their namespace.
    Tokens {
        /// The token IDs.
        tokens: Vec<u32>,
        /// The model's name, if it was given.
        model: Option<String>,
        /// The cache salt, if it was given.
        salt: Option<String>,
    },
}

/// What a decision is bounded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// An index older than this is not used, in microseconds.
    pub max_index_age_us: u64,
    /// Pages read, at most.
    pub max_page_reads: u32,
    /// Endpoints named, at most.
    pub max_destinations: usize,
}

/// Decides about a request.
///
/// `tie` is a number that differs from request to request.
pub fn decide(
    host: &impl Host,
    index: &mut IndexReader,
    ledger: &mut Ledger,
    prompt: &PromptSource,
    bounds: Bounds,
    now_us: u64,
    tie: u64,
) -> Decision {
    let fallback = |reason, lookup| Decision::Fallback(Fallback { reason, lookup });
    let snapshot = match index.snapshot(host, ledger, now_us, bounds.max_index_age_us) {
        Ok(snapshot) => snapshot,
        Err(reason) => return fallback(reason, None),
    };
    let view = &snapshot.view;
    let (hashes, tokens) = prompt.hash(&snapshot);
    if hashes.is_empty() {
        return fallback(Reason::ShortPrompt, None);
    }
    let candidates = view.candidates(ledger);
    if candidates.is_empty() {
        return fallback(Reason::NoWorkers, None);
    }
    let blocks = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
    let prompt = Prompt { blocks, tokens, block_size: view.pool.block_size };
    let limits = Limits { max_reads: bounds.max_page_reads, choices: bounds.max_destinations };
    let question = Question { prompt, candidates: &candidates, policy: &LongestPrefix, limits, tie };
    let mut pages = index.pages(host, &snapshot);
    let selection = select(&mut pages, view.shape(), &hashes, &question);
    let lookup =
        LookupFigures { prompt_blocks: blocks, reads: selection.reads, index_age_us: snapshot.age_us };
    match Route::new(&snapshot, &selection, &prompt, lookup) {
        Some(route) => Decision::Route(route),
        None => fallback(Reason::Cold, Some(lookup)),
    }
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
            Self::NoIndex,
            Self::StaleIndex,
            Self::ShortPrompt,
            Self::Cold,
            Self::NoWorkers,
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
            Self::NoIndex => "no_index",
            Self::StaleIndex => "stale_index",
            Self::ShortPrompt => "short_prompt",
            Self::Cold => "cold",
            Self::NoWorkers => "no_workers",
            Self::UnknownNamespace => "unknown_namespace",
            Self::Prompt(error) => error.as_str(),
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
                f.write_str("worker=")?;
                first.map_or(Ok(()), |address| address.fmt(f))?;
                write!(f, " rank={rank} cached_blocks={cached}")?;
            }
            Self::Fallback(fallback) => write!(f, "reason={}", fallback.reason.as_str())?,
        }
        self.lookup().map_or(Ok(()), |lookup| {
            write!(f, " prompt_blocks={} page_reads={}", lookup.prompt_blocks, lookup.reads)
        })
    }
}

// === impl Route ===

impl Route {
    /// The workers of a selection that hold anything of the prompt; none: no route.
    fn new(
        snapshot: &Snapshot,
        selection: &Selection,
        prompt: &Prompt,
        lookup: LookupFigures,
    ) -> Option<Self> {
        let holding = |choice: &&Choice| choice.depths.any() > 0;
        let best = selection.choices.iter().find(holding)?;
        let mut destinations = Vec::with_capacity(selection.choices.len());
        for choice in selection.choices.iter().filter(holding) {
            // Two ranks of one engine share an address.
            let Some(worker) = snapshot.view.pool.worker(choice.slot) else { continue };
            if !destinations.contains(&worker.address) {
                destinations.push(worker.address);
            }
        }
        let cached_blocks = best.depths.any();
        let cached_tokens = u64::from(cached_blocks) * u64::from(prompt.block_size);
        let uncached_tokens = prompt.tokens.saturating_sub(cached_tokens);
        let rank = snapshot.view.pool.worker(best.slot)?.rank;
        Some(Self { destinations, rank, cached_blocks, uncached_tokens, lookup })
    }
}

// === impl PromptSource ===

impl PromptSource {
    /// The hashes of the prompt's full blocks, and how many tokens it has.
    fn hash(&self, snapshot: &Snapshot) -> (Cow<'_, [SequenceHash]>, u64) {
        let pool = &snapshot.view.pool;
        match self {
            Self::Hashes(hashes) => {
                (Cow::Borrowed(hashes.as_slice()), hashes.len() as u64 * u64::from(pool.block_size))
            }
            Self::Tokens { tokens, model, salt } => {
                let namespace = pool.namespace(model.as_deref(), salt.as_deref());
                (Cow::Owned(sequence_hashes(tokens, pool.block_size, namespace)), tokens.len() as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests;
