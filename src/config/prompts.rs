//! Where a pool's text and chat prompts are tokenized.

use super::error::ConfigError;
use super::names::{authority, cluster_name};
use super::reader::Field;

/// Where the blocks of a prompt without token IDs come from, and how long they are waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptsConfig {
    /// The Envoy cluster of the collector.
    pub cluster: String,
    /// The `:authority` of the requests to it.
    pub authority: String,
    /// How long a request waits for its blocks at most, in milliseconds: 1 to 10,000.
    pub max_wait_ms: u64,
    /// How much longer it may wait for each KiB of its body, in microseconds: 0 to 100,000.
    pub max_wait_us_per_kib: u64,
    /// Whether the engines are handed the token IDs in the place of the text, where their API takes either.
    pub hand_over_tokens: bool,
}

const FIELDS: [&str; 5] = ["cluster", "authority", "max_wait_ms", "max_wait_us_per_kib", "hand_over_tokens"];

// === impl PromptsConfig ===

impl PromptsConfig {
    /// How long a request with a body of so many bytes waits at most, in milliseconds; at least 1.
    pub fn budget_ms(&self, body_bytes: u64) -> u64 {
        self.max_wait_ms.saturating_add((body_bytes / 1024).saturating_mul(self.max_wait_us_per_kib) / 1000)
    }
}

pub(super) fn read(field: &Field<'_>) -> Result<PromptsConfig, ConfigError> {
    let fields = field.fields(&FIELDS)?;
    let cluster = cluster_name(&fields.required("cluster", "the name of the collector's Envoy cluster")?)?;
    let authority = fields.get("authority").map_or_else(|| Ok(cluster.clone()), |field| authority(&field))?;
    Ok(PromptsConfig {
        cluster,
        authority,
        max_wait_ms: fields.number("max_wait_ms", 1..=10_000, 30)?,
        max_wait_us_per_kib: fields.number("max_wait_us_per_kib", 0..=100_000, 250)?,
        hand_over_tokens: fields.flag("hand_over_tokens", false)?,
    })
}
