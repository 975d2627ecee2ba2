//! What a request's headers say, and what the filter writes into them.

use std::fmt::Write;
use std::net::SocketAddr;

use base64::Engine as _;
use warmroute_routing::hash::{SequenceHash, sequence_hashes};
use warmroute_routing::pool::Pool;

use crate::config::{FilterConfig, Steering, WishHeaders};
use crate::decision::{Decision, Reason, Route};
use crate::host::{Headers, RequestHost};
use crate::prompt::header;
use crate::wishes::{LoadScale, Session, Subset, Wishes};

/// What is to be done with a request, by its headers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Intake {
    /// Its path is not one that the filter reads.
    NotOurs,
    /// There is no prompt to be had.
    Refused(Reason),
    /// The prompt came in a header.
    Prompt(HeaderPrompt),
    /// The prompt is to be looked for in the body.
    Body {
        /// How long the body says that it is, in bytes.
        content_length: Option<u64>,
    },
}

/// A prompt that came in a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderPrompt {
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

/// The prompt headers' values, taken out of the request.
struct PromptValues<'a> {
    tokens: Option<&'a [u8]>,
    tokens_base64: Option<&'a [u8]>,
    block_hashes: Option<&'a [u8]>,
    model: Option<&'a [u8]>,
    cache_salt: Option<&'a [u8]>,
}

/// Takes the filter's own headers out of the request, whatever its path, and looks for the prompt.
///
/// A destination header that a client sent would choose the host: it goes first, before anything can go wrong.
pub(super) fn take_in(host: &impl RequestHost, config: &FilterConfig, end: bool) -> (Intake, Wishes) {
    let headers = host.request_headers();
    take(host, &headers, &config.destination_header);
    let wishes = take_wishes(host, &headers, &config.wish_headers);
    (intake(host, &headers, config, end), wishes)
}

fn intake(host: &impl RequestHost, headers: &Headers, config: &FilterConfig, end: bool) -> Intake {
    let values = PromptValues::take(host, headers, config);
    let path = headers.get(":path").unwrap_or_default();
    if !std::str::from_utf8(path).is_ok_and(|path| config.reads_path(path)) {
        return Intake::NotOurs;
    }
    match values.prompt(config) {
        Some(Ok(prompt)) => Intake::Prompt(prompt),
        Some(Err(reason)) => Intake::Refused(reason),
        None => body_intake(headers, config, end),
    }
}

fn take_wishes(host: &impl RequestHost, headers: &Headers, names: &WishHeaders) -> Wishes {
    let take = |name: &Option<String>| name.as_ref().and_then(|name| take(host, headers, name));
    Wishes {
        subset: take(&names.subset).map(Subset::parse),
        session: take(&names.session).and_then(Session::parse),
        load_scale: take(&names.load_scale).and_then(LoadScale::parse),
    }
}

/// A header's value, which is removed from the request. An absent header costs no call.
fn take<'a>(host: &impl RequestHost, headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    let value = headers.get(name)?;
    host.remove_request_header(name);
    Some(value)
}

/// Whether the prompt may be looked for in the body: never hold a request whose body will not come.
fn body_intake(headers: &Headers, config: &FilterConfig, end: bool) -> Intake {
    if end {
        return Intake::Refused(Reason::NoBody);
    }
    if !config.read_body {
        return Intake::Refused(Reason::BodyNotRead);
    }
    if headers.get(":method") == Some(b"CONNECT") || headers.get("upgrade").is_some() {
        return Intake::Refused(Reason::Upgrade);
    }
    if !headers.get("content-type").is_some_and(is_json) {
        return Intake::Refused(Reason::ContentType);
    }
    let encoding = headers.get("content-encoding");
    if encoding.is_some_and(|encoding| !encoding.trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Intake::Refused(Reason::Compressed);
    }
    let length = headers.get("content-length");
    Intake::Body { content_length: length.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()) }
}

/// `application/json`, or any type whose name ends in `+json`, whatever its parameters.
fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(b"application/json")
        || essence.last_chunk::<5>().is_some_and(|end| end.eq_ignore_ascii_case(b"+json"))
}

/// Names a route's endpoints and, where the pool has ranks, the rank.
pub(super) fn name_destination(host: &impl RequestHost, config: &FilterConfig, route: &Route) {
    let destination = match config.steering {
        Steering::OverrideHost => destination_list(&route.destinations),
        Steering::StatefulSession => session(&route.destinations),
    };
    host.set_request_header(&config.destination_header, &destination);
    if route.ranked {
        host.set_request_header(&config.rank_header, &route.rank.to_string());
    }
}

/// The session that Envoy's `stateful_session` filter would have given out for the first endpoint.
fn session(destinations: &[SocketAddr]) -> String {
    let address = destinations.first().map(SocketAddr::to_string).unwrap_or_default();
    base64::engine::general_purpose::STANDARD.encode(address)
}

fn destination_list(destinations: &[SocketAddr]) -> String {
    let mut list = String::with_capacity(destinations.len() * 22);
    for address in destinations {
        if !list.is_empty() {
            list.push(',');
        }
        // Writing to a String cannot fail.
        let _ = write!(list, "{address}");
    }
    list
}

/// The decision header's value. `waited_us`: how long the collector's answer was waited for, where it was asked.
pub(super) fn decision_text(decision: &Decision, steers: bool, waited_us: Option<u64>) -> String {
    let outcome = match decision {
        Decision::Route(_) if steers => "steered",
        Decision::Route(_) => "observed",
        Decision::Fallback(_) => "fallback",
    };
    let mut text = format!("{outcome} {decision}");
    if let Some(waited_us) = waited_us {
        // Writing to a String cannot fail.
        let _ = write!(text, " waited_us={waited_us}");
    }
    text
}

// === impl HeaderPrompt ===

impl HeaderPrompt {
    /// The hashes of the prompt's full blocks, and how many tokens it has.
    pub(super) fn hash(self, pool: &Pool) -> (Vec<SequenceHash>, u64) {
        match self {
            Self::Hashes(hashes) => {
                let tokens = hashes.len() as u64 * u64::from(pool.block_size);
                (hashes, tokens)
            }
            Self::Tokens { tokens, model, salt } => {
                let namespace = pool.namespace(model.as_deref(), salt.as_deref());
                (sequence_hashes(&tokens, pool.block_size, namespace), tokens.len() as u64)
            }
        }
    }
}

// === impl PromptValues ===

impl<'a> PromptValues<'a> {
    fn take(host: &impl RequestHost, headers: &'a Headers, config: &FilterConfig) -> Self {
        let names = &config.prompt_headers;
        let take = |name| take(host, headers, name);
        Self {
            tokens: take(&names.tokens),
            tokens_base64: take(&names.tokens_base64),
            block_hashes: take(&names.block_hashes),
            model: take(&names.model),
            cache_salt: take(&names.cache_salt),
        }
    }

    /// The prompt, from the first header that has one.
    fn prompt(self, config: &FilterConfig) -> Option<Result<HeaderPrompt, Reason>> {
        if let Some(value) = self.block_hashes.filter(|_| config.trust_block_hashes) {
            let hashes = header::block_hashes(value).map_err(Reason::Prompt);
            return Some(
                hashes.map(|hashes| HeaderPrompt::Hashes(hashes.into_iter().map(SequenceHash).collect())),
            );
        }
        let tokens = match (self.tokens, self.tokens_base64) {
            (Some(value), _) => header::decimal_tokens(value),
            (None, Some(value)) => header::base64_tokens(value),
            (None, None) => return None,
        };
        let text = |value: Option<&[u8]>| match value.map(std::str::from_utf8) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text.to_owned())),
            Some(Err(_)) => Err(Reason::UnknownNamespace),
        };
        let prompt = || {
            let tokens = tokens.map_err(Reason::Prompt)?;
            Ok(HeaderPrompt::Tokens { tokens, model: text(self.model)?, salt: text(self.cache_salt)? })
        };
        Some(prompt())
    }
}
