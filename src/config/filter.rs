//! The role of the HTTP filter.

use super::error::ConfigError;
use super::names::header_name;
use super::paths::{self, PathPattern, without_query};
use super::pools::{self, Pool};
use super::publisher::{self, PublisherConfig};
use super::reader::{Field, Fields};

/// The configuration of the HTTP filter.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterConfig {
    /// The pools that this filter routes to: at least one.
    pub pools: Vec<Pool>,
    /// Whether decisions take effect.
    pub mode: Mode,
    /// The request paths whose prompt is read: at least one.
    pub paths: Vec<PathPattern>,
    /// The request headers that may carry a prompt. The filter removes them from requests.
    pub prompt_headers: PromptHeaders,
    /// Whether block hashes are read from their header.
    pub trust_block_hashes: bool,
    /// Whether token IDs are read from a JSON body.
    pub read_body: bool,
    /// The most bytes of a body that are held back before the decision.
    pub max_held_bytes: usize,
    /// How the destination is named.
    pub steering: Steering,
    /// The request header that names the hosts.
    pub destination_header: String,
    /// The request header that names the data-parallel rank.
    pub rank_header: String,
    /// The response header that says what was decided and why, where one is wanted.
    pub decision_header: Option<String>,
    /// Hosts in the destination header: 1 to 8.
    pub max_destinations: usize,
    /// An index whose publisher has not reported for this long is not used, in milliseconds.
    pub max_index_age_ms: u64,
    /// Pages read for one decision, at most.
    pub max_page_reads: usize,
    /// How long what was just routed counts as cached, in milliseconds; 0: not at all.
    pub recent_routes_ms: u64,
    /// The headers in which a request may wish something of the choice. The filter removes them from requests.
    pub wish_headers: WishHeaders,
    /// How long after its last request a session keeps its worker, in milliseconds.
    pub session_ttl_ms: u64,
    /// Of so many steered requests one has its answer read, to compare what was cached with what was predicted; 0: none.
    pub compare_every: u32,
    /// What this filter's worker VMs stand by to publish, where they do.
    pub publisher: Option<PublisherConfig>,
}

/// Whether decisions take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Names the destination.
    Steer,
    /// Decides and counts, and changes nothing.
    Observe,
}

/// How the destination is named to Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steering {
    /// To the cluster's `override_host` policy: a list of hosts, one for each attempt. Their health is not looked at.
    OverrideHost,
    /// To the `stateful_session` filter in its header mode: one host, if Envoy holds it for healthy.
    StatefulSession,
}

/// The request headers that may wish something of the choice, each only where it is configured. All distinct, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WishHeaders {
    /// The only endpoints that may be chosen, as `ip:port,ip:port`.
    pub subset: Option<String>,
    /// The name of the session that the request belongs to.
    pub session: Option<String>,
    /// What load counts for: a number from 0 to 10.
    pub load_scale: Option<String>,
}

/// The request headers that may carry a prompt and its namespace. All distinct, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptHeaders {
    /// Token IDs as a decimal list.
    pub tokens: String,
    /// Token IDs as base64 of little-endian u32.
    pub tokens_base64: String,
    /// Sequence hashes, 16 hexadecimal digits each.
    pub block_hashes: String,
    /// The model's name, where the prompt comes in a header.
    pub model: String,
    /// The cache salt, where the prompt comes in a header.
    pub cache_salt: String,
}

const FIELDS: [&str; 20] = [
    "role",
    "pools",
    "mode",
    "paths",
    "prompt_headers",
    "trust_block_hashes",
    "read_body",
    "max_held_bytes",
    "steering",
    "destination_header",
    "rank_header",
    "decision_header",
    "max_destinations",
    "max_index_age_ms",
    "max_page_reads",
    "recent_routes_ms",
    "wish_headers",
    "session_ttl_ms",
    "compare_every",
    "publisher",
];

const HEADER_FIELDS: [&str; 5] = ["tokens", "tokens_base64", "block_hashes", "model", "cache_salt"];

const WISH_FIELDS: [&str; 3] = ["subset", "session", "load_scale"];

/// Where vLLM and SGLang take token IDs.
const DEFAULT_PATHS: [&str; 3] = ["/v1/completions", "/inference/v1/generate", "/generate"];

/// Where chats come in: read too, unless told otherwise, where some pool has its text prompts tokenized.
const CHAT_PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

/// The name that the endpoint picker protocol gives the header.
const DEFAULT_DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";

/// vLLM's and SGLang's name for it.
const DEFAULT_RANK_HEADER: &str = "x-data-parallel-rank";

/// Three quarters of Envoy's default buffer limit: a held body must stay under it, or Envoy answers 413.
const DEFAULT_HELD_BYTES: usize = 786_432;

/// More than any sensible buffer limit. A larger number is a typing error.
const MOST_HELD_BYTES: usize = 64 << 20;

/// A day. An index that old describes caches that are long gone.
const MOST_INDEX_AGE_MS: u64 = 86_400_000;

/// A day, and a second: a session that ends sooner is none.
const SESSION_TTL_MS: std::ops::RangeInclusive<u64> = 1_000..=86_400_000;

/// A minute. What an engine has not told of by then, it has not kept.
const MOST_RECENT_MS: u64 = 60_000;

/// A page read is a call out of the VM, some 3 us: this many are 12 ms on the request's path, more than any choice
/// gains.
const MOST_PAGE_READS: usize = 4_096;

// === impl FilterConfig ===

impl FilterConfig {
    /// The pool that takes the requests of an Envoy cluster, as an index into `pools`.
    pub fn pool_for_cluster(&self, cluster: &str) -> Option<usize> {
        let lists_it = |pool: &Pool| pool.clusters.iter().any(|name| name == cluster);
        let takes_the_rest = |pool: &Pool| pool.clusters.is_empty();
        self.pools.iter().position(lists_it).or_else(|| self.pools.iter().position(takes_the_rest))
    }

    /// Whether the prompt of a request with this `:path` is read. The query is ignored.
    pub fn reads_path(&self, path: &str) -> bool {
        let path = without_query(path);
        self.paths.iter().any(|pattern| pattern.matches(path))
    }
}

pub(super) fn read_role(root: &Field<'_>) -> Result<FilterConfig, ConfigError> {
    let fields = root.fields(&FIELDS)?;
    let pools = pools::read(&fields)?;
    let config = FilterConfig {
        mode: mode(&fields)?,
        paths: path_patterns(&fields, &pools)?,
        pools,
        prompt_headers: prompt_headers(&fields)?,
        trust_block_hashes: fields.flag("trust_block_hashes", false)?,
        read_body: fields.flag("read_body", true)?,
        max_held_bytes: fields.number("max_held_bytes", 1..=MOST_HELD_BYTES, DEFAULT_HELD_BYTES)?,
        steering: steering(&fields)?,
        rank_header: header(&fields, "rank_header", DEFAULT_RANK_HEADER)?,
        destination_header: header(&fields, "destination_header", DEFAULT_DESTINATION_HEADER)?,
        decision_header: fields.get("decision_header").map(|field| header_name(&field)).transpose()?,
        max_destinations: fields.number("max_destinations", 1..=8, 2)?,
        max_index_age_ms: fields.number("max_index_age_ms", 1..=MOST_INDEX_AGE_MS, 30_000)?,
        max_page_reads: fields.number("max_page_reads", 1..=MOST_PAGE_READS, 64)?,
        recent_routes_ms: fields.number("recent_routes_ms", 0..=MOST_RECENT_MS, 2_000)?,
        wish_headers: wish_headers(&fields)?,
        session_ttl_ms: fields.number("session_ttl_ms", SESSION_TTL_MS, 600_000)?,
        compare_every: fields.number("compare_every", 0..=1_000_000, 8)?,
        publisher: publisher::read_optional(&fields)?,
    };
    check_distinct_headers(&config)?;
    check_index_age(&config)?;
    check_text_is_read(&config)?;
    Ok(config)
}

/// Text is only in bodies.
fn check_text_is_read(config: &FilterConfig) -> Result<(), ConfigError> {
    match config.pools.iter().position(|pool| pool.prompts.is_some()) {
        Some(pool) if !config.read_body => Err(ConfigError::at(
            "read_body",
            format!("is false, but pools[{pool}].prompts needs the body"),
            "true, or no prompts",
        )),
        _ => Ok(()),
    }
}

/// Where nothing changes, the collector is heard once in a long poll: an index must not be too old before that.
fn check_index_age(config: &FilterConfig) -> Result<(), ConfigError> {
    let Some(publisher) = &config.publisher else { return Ok(()) };
    if config.max_index_age_ms > publisher.long_poll_ms {
        return Ok(());
    }
    let (age, poll) = (config.max_index_age_ms, publisher.long_poll_ms);
    Err(ConfigError::at(
        "max_index_age_ms",
        format!("is {age}, but must be more than publisher.long_poll_ms, which is {poll}"),
        "a larger age or a shorter poll",
    ))
}

fn mode(fields: &Fields<'_>) -> Result<Mode, ConfigError> {
    let Some(field) = fields.get("mode") else { return Ok(Mode::Steer) };
    Ok(if field.one_of(&["steer", "observe"])? == "observe" { Mode::Observe } else { Mode::Steer })
}

fn steering(fields: &Fields<'_>) -> Result<Steering, ConfigError> {
    let Some(field) = fields.get("steering") else { return Ok(Steering::OverrideHost) };
    Ok(match field.one_of(&["override_host", "stateful_session"])? {
        "stateful_session" => Steering::StatefulSession,
        _ => Steering::OverrideHost,
    })
}

fn path_patterns(fields: &Fields<'_>, pools: &[Pool]) -> Result<Vec<PathPattern>, ConfigError> {
    let Some(field) = fields.get("paths") else {
        let with_text = pools.iter().any(|pool| pool.prompts.is_some());
        let chats = if with_text { CHAT_PATHS.as_slice() } else { &[] };
        let paths = DEFAULT_PATHS.iter().chain(chats);
        return Ok(paths.map(|path| PathPattern::Exact((*path).to_owned())).collect());
    };
    let advice = "a list such as [\"/v1/completions\"]";
    let items = field.list("a list of request paths", advice)?;
    if items.is_empty() {
        return Err(field.error("is empty, so that no prompt would ever be read", advice));
    }
    items.iter().map(paths::read).collect()
}

fn prompt_headers(fields: &Fields<'_>) -> Result<PromptHeaders, ConfigError> {
    let field = fields.get("prompt_headers");
    let fields = field.map(|field| field.fields(&HEADER_FIELDS)).transpose()?;
    let name = |member, default: &str| match &fields {
        Some(fields) => header(fields, member, default),
        None => Ok(default.to_owned()),
    };
    Ok(PromptHeaders {
        tokens: name("tokens", "x-warmroute-tokens")?,
        tokens_base64: name("tokens_base64", "x-warmroute-tokens-base64")?,
        block_hashes: name("block_hashes", "x-warmroute-block-hashes")?,
        model: name("model", "x-warmroute-model")?,
        cache_salt: name("cache_salt", "x-warmroute-cache-salt")?,
    })
}

fn wish_headers(fields: &Fields<'_>) -> Result<WishHeaders, ConfigError> {
    let Some(field) = fields.get("wish_headers") else { return Ok(WishHeaders::default()) };
    let fields = field.fields(&WISH_FIELDS)?;
    let name = |member| fields.get(member).map(|field| header_name(&field)).transpose();
    Ok(WishHeaders { subset: name("subset")?, session: name("session")?, load_scale: name("load_scale")? })
}

fn header(fields: &Fields<'_>, name: &str, default: &str) -> Result<String, ConfigError> {
    fields.get(name).map_or_else(|| Ok(default.to_owned()), |field| header_name(&field))
}

/// One header with two meanings would be read as the wrong one.
fn check_distinct_headers(config: &FilterConfig) -> Result<(), ConfigError> {
    let prompt = &config.prompt_headers;
    let mut names = vec![
        ("prompt_headers.tokens", &prompt.tokens),
        ("prompt_headers.tokens_base64", &prompt.tokens_base64),
        ("prompt_headers.block_hashes", &prompt.block_hashes),
        ("prompt_headers.model", &prompt.model),
        ("prompt_headers.cache_salt", &prompt.cache_salt),
        ("destination_header", &config.destination_header),
        ("rank_header", &config.rank_header),
    ];
    names.extend(config.decision_header.iter().map(|name| ("decision_header", name)));
    let wishes = &config.wish_headers;
    names.extend(wishes.subset.iter().map(|name| ("wish_headers.subset", name)));
    names.extend(wishes.session.iter().map(|name| ("wish_headers.session", name)));
    names.extend(wishes.load_scale.iter().map(|name| ("wish_headers.load_scale", name)));
    for (position, (path, name)) in names.iter().enumerate() {
        if let Some((other, _)) = names.iter().take(position).find(|(_, earlier)| earlier == name) {
            return Err(ConfigError::at(
                path,
                format!("is {name:?}, as {other} is"),
                "another name for one of them",
            ));
        }
    }
    Ok(())
}
