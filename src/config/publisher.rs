//! The publisher: as a role of its own, and as what a filter's worker VMs stand by for.

use super::error::ConfigError;
use super::names::{authority, cluster_name};
use super::pools;
use super::reader::{Field, Fields};

/// The configuration of a bootstrap singleton that publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherRole {
    /// The names of the pools to fetch, at least one, each once.
    pub pools: Vec<String>,
    /// Where the index comes from, and how often.
    pub publisher: PublisherConfig,
}

/// Where the index comes from, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherConfig {
    /// The Envoy cluster of the collector.
    pub cluster: String,
    /// The `:authority` of the feed's requests.
    pub authority: String,
    /// How long the collector may hold an answer open, in milliseconds: 100 to 60,000.
    pub long_poll_ms: u64,
    /// How often the publisher looks at its lease, its requests and its proxy's load, in milliseconds: 10 to 5,000.
    pub tick_ms: u64,
    /// The most pages' bytes in one answer: 4,096 to 8,388,608.
    pub max_answer_bytes: usize,
    /// A publisher that has not renewed its lease for this long is replaced, in milliseconds: 500 to 60,000, and more
    /// than `tick_ms`.
    pub lease_ms: u64,
}

const FIELDS: [&str; 6] = ["cluster", "authority", "long_poll_ms", "tick_ms", "max_answer_bytes", "lease_ms"];

pub(super) fn read_role(root: &Field<'_>) -> Result<PublisherRole, ConfigError> {
    let fields = root.fields(&["role", "pools", "publisher"])?;
    let pools = pools::read_names(&fields)?;
    let field = fields.required("publisher", "an object such as {\"cluster\": \"warmroute-collector\"}")?;
    Ok(PublisherRole { pools, publisher: read(&field)? })
}

pub(super) fn read_optional(fields: &Fields<'_>) -> Result<Option<PublisherConfig>, ConfigError> {
    fields.get("publisher").map(|field| read(&field)).transpose()
}

fn read(field: &Field<'_>) -> Result<PublisherConfig, ConfigError> {
    let fields = field.fields(&FIELDS)?;
    let cluster = cluster_name(&fields.required("cluster", "the name of the collector's Envoy cluster")?)?;
    let authority = fields.get("authority").map_or_else(|| Ok(cluster.clone()), |field| authority(&field))?;
    let config = PublisherConfig {
        cluster,
        authority,
        long_poll_ms: fields.number("long_poll_ms", 100..=60_000, 10_000)?,
        tick_ms: fields.number("tick_ms", 10..=5_000, 25)?,
        max_answer_bytes: fields.number("max_answer_bytes", 4_096..=8_388_608, 65_536)?,
        lease_ms: fields.number("lease_ms", 500..=60_000, 3_000)?,
    };
    // A lease that ends before its next renewal passes from publisher to publisher for ever.
    if config.lease_ms <= config.tick_ms {
        return Err(ConfigError::at(
            &format!("{}.lease_ms", field.path()),
            format!("is {}, but must be more than tick_ms, which is {}", config.lease_ms, config.tick_ms),
            "a longer lease or a shorter tick",
        ));
    }
    Ok(config)
}
