//! Endpoints of ZeroMQ sockets.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// `tcp://host:port` of rank 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// Where an engine's live events come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Events {
    /// The engine listens here, and the collector dials.
    Dial(Endpoint),
    /// The collector listens here, and the engine dials. Several engines may share it.
    Bind(Endpoint),
}

/// A text that is no [`Endpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write it as `tcp://host:port`, with the host that the engine is reached at (no `*`) and a port from 1 to 65535"
)]
pub struct EndpointError;

/// `host:port`, with a host that can be dialled and a port that is not 0.
pub(super) fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    is_host(host).then_some((host, port))
}

/// A name, or an address: of IPv6 in brackets.
pub(super) fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)),
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// The host, an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Rank 0's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same port at another endpoint's host.
    pub fn at_host_of(&self, other: &Self) -> Self {
        Self { host: other.host.clone(), port: self.port }
    }

    /// The endpoint of a rank: each has the next port. `None` past the last port.
    pub fn of_rank(&self, rank: u16) -> Option<Self> {
        Some(Self { host: self.host.clone(), port: self.port.checked_add(rank)? })
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (host, port) = text.strip_prefix("tcp://").and_then(host_and_port).ok_or(EndpointError)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}:{}", self.host, self.port)
    }
}

// === impl Events ===

impl Events {
    /// The endpoint of rank 0.
    pub fn endpoint(&self) -> &Endpoint {
        match self {
            Self::Dial(endpoint) | Self::Bind(endpoint) => endpoint,
        }
    }

    /// Those of a rank: each has the next port. `None` past the last port.
    pub fn of_rank(&self, rank: u16) -> Option<Self> {
        Some(match self {
            Self::Dial(endpoint) => Self::Dial(endpoint.of_rank(rank)?),
            Self::Bind(endpoint) => Self::Bind(endpoint.of_rank(rank)?),
        })
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(endpoint) => endpoint.fmt(f),
            Self::Bind(endpoint) => write!(f, "bind {endpoint}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_the_next_port() {
        let endpoint: Endpoint = "tcp://[::1]:65534".parse().unwrap();
        assert_eq!(endpoint.of_rank(1).unwrap().to_string(), "tcp://[::1]:65535");
        assert_eq!(endpoint.of_rank(2), None);
    }

    #[test]
    fn only_a_host_that_can_be_dialled_is_an_endpoint() {
        for good in ["tcp://127.0.0.1:5557", "tcp://vllm-0.vllm_headless:1", "tcp://[2001:db8::1]:65535"] {
            assert_eq!(good.parse::<Endpoint>().unwrap().to_string(), good);
        }
        for bad in [
            "tcp://*:5557",
            "127.0.0.1:5557",
            "ipc:///tmp/x",
            "tcp://a",
            "tcp://a:0",
            "tcp://a:65536",
            "tcp://::1:5",
            "tcp://:5",
        ] {
            assert_eq!(bad.parse::<Endpoint>(), Err(EndpointError), "{bad}");
        }
    }
}
