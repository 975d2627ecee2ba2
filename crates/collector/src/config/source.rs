//! Where a worker's events come from.

use std::net::SocketAddr;

use warmroute_wire::Engine;

use super::check::{number, refused};
use super::{ConfigError, Endpoint, Events, PollUrl};

/// Where a worker's events come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// Each rank publishes by itself: the publishers, by rank.
    Published(Vec<Publisher>),
    /// One URL is polled for the events of all ranks.
    Polled {
        /// The URL.
        url: PollUrl,
        /// How many ranks there are.
        ranks: u16,
    },
}

/// One rank's publisher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Publisher {
    /// Its live events.
    pub events: Events,
    /// Its replay, if it has one.
    pub replay: Option<Endpoint>,
}

/// A source as it is written: of rank 0, with `data_parallel_size` ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    events: String,
    replay: Option<String>,
    data_parallel_size: u64,
}

/// Before an endpoint that engines dial.
const BIND: &str = "bind ";

// === impl EventSource ===

impl EventSource {
    /// How many ranks there are.
    pub fn ranks(&self) -> u16 {
        match self {
            Self::Published(publishers) => u16::try_from(publishers.len()).unwrap_or(u16::MAX),
            Self::Polled { ranks, .. } => *ranks,
        }
    }

    /// What may belong to one worker only: two workers at one would each be credited with what the other holds, or each
    /// be told half. With the field that names it.
    pub(crate) fn dialled(&self) -> Vec<(&'static str, String)> {
        let publishers = match self {
            Self::Polled { url, .. } => return vec![("events", url.to_string())],
            Self::Published(publishers) => publishers,
        };
        let mut dialled = Vec::new();
        for Publisher { events, replay } in publishers {
            let Events::Dial(events) = events else { continue };
            dialled.push(("events", events.to_string()));
            dialled.extend(replay.as_ref().map(|replay| ("replay", replay.to_string())));
        }
        dialled
    }
}

// === impl SourceText ===

impl SourceText {
    /// As it is written; `events` at `field` is needed where anything else is written.
    pub(super) fn new(
        field: &str,
        events: Option<String>,
        replay: Option<String>,
        data_parallel_size: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let message =
            "write it too, or leave out `replay` and `data_parallel_size`: the engine is asked then";
        let events = events.ok_or_else(|| refused(field, message))?;
        Ok(Self { events, replay, data_parallel_size: data_parallel_size.unwrap_or(1) })
    }

    /// Whether the engines dial.
    pub(super) fn is_bound(&self) -> bool {
        self.events.starts_with(BIND)
    }

    /// Whether every endpoint has the worker's host.
    pub(super) fn names_the_worker(&self) -> bool {
        [Some(&self.events), self.replay.as_ref()].into_iter().flatten().all(|text| text.contains("//*"))
    }

    /// Reads it, for a worker at this address where it has `*` in the place of a host.
    pub(super) fn of_worker(
        &self,
        path: &str,
        engine: Engine,
        address: SocketAddr,
    ) -> Result<EventSource, ConfigError> {
        let here = |text: &str| text.replacen("//*", &format!("//{}", host(address)), 1);
        let replay = self.replay.as_deref().map(here);
        Self { events: here(&self.events), replay, data_parallel_size: self.data_parallel_size }
            .read(path, engine)
    }

    /// Reads it.
    pub(super) fn read(&self, path: &str, engine: Engine) -> Result<EventSource, ConfigError> {
        let field = |name: &str| format!("{path}.{name}");
        let ranks = number(field("data_parallel_size"), self.data_parallel_size, 1..=64)? as u16;
        if PollUrl::is_meant_by(&self.events) {
            return self.read_url(path, engine, ranks);
        }
        let events = events(field("events"), &self.events, ranks)?;
        let replay = self.replay.as_ref().map(|text| endpoint(field("replay"), text, ranks)).transpose()?;
        if let (Some(replay), Events::Dial(events)) = (&replay, &events)
            && replay.host() == events.host()
            && replay.port().abs_diff(events.port()) < ranks
        {
            let message = format!(
                "each of the {ranks} ranks takes a port from here on, and `events` does too: {events} and \
                {replay} are too close"
            );
            return Err(refused(field("replay"), message));
        }
        // Every rank has a port: that has been looked at.
        let publishers = (0..ranks).filter_map(|rank| {
            let replay = replay.as_ref().and_then(|replay| replay.of_rank(rank));
            Some(Publisher { events: events.of_rank(rank)?, replay })
        });
        Ok(EventSource::Published(publishers.collect()))
    }

    fn read_url(&self, path: &str, engine: Engine, ranks: u16) -> Result<EventSource, ConfigError> {
        let field = format!("{path}.events");
        if engine != Engine::TrtLlm {
            let message =
                "only `engine: trtllm` is polled: write `tcp://host:port`, where the engine publishes";
            return Err(refused(field, message));
        }
        if self.replay.is_some() {
            return Err(refused(
                format!("{path}.replay"),
                "nothing is replayed where events are polled: leave it out",
            ));
        }
        let url =
            self.events.parse().map_err(|error| refused(field, format!("`{}`: {error}", self.events)))?;
        Ok(EventSource::Polled { url, ranks })
    }
}

/// An address's host as it stands in a URL.
pub(crate) fn host(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

fn events(field: String, text: &str, ranks: u16) -> Result<Events, ConfigError> {
    match text.strip_prefix(BIND) {
        Some(text) => endpoint(field, text.trim_start(), ranks).map(Events::Bind),
        None => endpoint(field, text, ranks).map(Events::Dial),
    }
}

fn endpoint(field: String, text: &str, ranks: u16) -> Result<Endpoint, ConfigError> {
    let endpoint: Endpoint = text.parse().map_err(|error| refused(&field, format!("`{text}`: {error}")))?;
    if endpoint.of_rank(ranks - 1).is_none() {
        return Err(refused(field, format!("{ranks} ranks need as many ports from {} on", endpoint.port())));
    }
    Ok(endpoint)
}
