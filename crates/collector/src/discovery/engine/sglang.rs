//! SGLang: `kv_events` in `GET /server_info`.

use std::net::SocketAddr;

use serde::Deserialize;

use super::{AskError, Found, dialled, get};
use crate::config::{Endpoint, EventSource, Events, Publisher};

const INFO: &str = "/server_info";

#[derive(Debug, Deserialize)]
pub(super) struct Info {
    #[serde(default)]
    kv_events: Option<KvEvents>,
}

/// Where it publishes: rank `r` at each port `+ r`.
#[derive(Debug, Deserialize)]
struct KvEvents {
    endpoint_host: String,
    endpoint_port_base: u16,
    #[serde(default)]
    replay_endpoint_port_base: Option<u16>,
    #[serde(default)]
    block_size: Option<u32>,
    #[serde(default)]
    dp_size: Option<u16>,
    /// Proposed (#38032), for ranks on several hosts.
    #[serde(default)]
    publishers: Option<Vec<RankEndpoint>>,
}

#[derive(Debug, Deserialize)]
struct RankEndpoint {
    dp_rank: u32,
    endpoint: String,
}

pub(super) async fn ask(address: SocketAddr) -> Result<Found, AskError> {
    let body = get(address, INFO, "write `events`").await?;
    let info = serde_json::from_slice(&body).map_err(|error| AskError::Json { path: INFO, error })?;
    found(info, address)
}

pub(super) fn found(info: Info, address: SocketAddr) -> Result<Found, AskError> {
    let off = "start it with `--kv-events-config`; a release that does not tell needs `events`";
    let events = info.kv_events.ok_or(AskError::Off(off))?;
    let ranks = events.dp_size.unwrap_or(1).clamp(1, 64);
    let at = |base: u16, rank: u16| {
        let endpoint = format!("tcp://{}:{base}", events.endpoint_host);
        let of_rank = dialled(&endpoint, address)?.of_rank(rank);
        of_rank.ok_or(AskError::Endpoint(endpoint))
    };
    let own = |rank: u16| -> Result<Option<Endpoint>, AskError> {
        let mut publishers = events.publishers.iter().flatten();
        let publisher = publishers.find(|publisher| publisher.dp_rank == u32::from(rank));
        publisher.map(|publisher| dialled(&publisher.endpoint, address)).transpose()
    };
    let publishers = (0..ranks).map(|rank| {
        let own = own(rank)?;
        let mut replay = events.replay_endpoint_port_base.map(|base| at(base, rank)).transpose()?;
        // A rank on another host replays there.
        if let (Some(own), Some(here)) = (&own, &replay) {
            replay = Some(here.at_host_of(own));
        }
        let events = own.map_or_else(|| at(events.endpoint_port_base, rank), Ok)?;
        Ok(Publisher { events: Events::Dial(events), replay })
    });
    let publishers = publishers.collect::<Result<_, AskError>>()?;
    Ok(Found { source: EventSource::Published(publishers), block_size: events.block_size })
}
