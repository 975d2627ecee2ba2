//! The plugin's configuration: JSON in, a checked [`Config`] out, or an error that names the field.
//!
//! `docs/configuration.md` is the contract. Nothing unknown is skipped: an unknown field, a field given twice, a
//! wrong type or an impossible value ends the load, so that a typing error shows at the rollout and not as a filter
//! that quietly does something else.
//!
//! ```text
//! bytes --serde_json--> Node (a tree that keeps duplicate keys)
//!       --Fields------> each field by name, with its path   (wrong types, unknown and duplicate fields)
//!       --filter, publisher, pools--> Config                (ranges, names, fields that contradict each other)
//! ```
//!
//! The tree is read by hand, not by a derived `Deserialize`: an operator who reads the message in Envoy's log needs
//! the path of the field and what to write there, and serde's own messages have neither.

mod error;
mod filter;
mod names;
mod node;
mod paths;
mod policy;
mod pools;
mod prompts;
mod publisher;
mod reader;
#[cfg(test)]
mod tests;

pub use error::ConfigError;
pub use filter::{FilterConfig, Mode, PromptHeaders, Steering, WishHeaders};
pub use paths::PathPattern;
pub use pools::Pool;
pub use prompts::PromptsConfig;
pub use publisher::{PublisherConfig, PublisherRole};

use node::Node;
use reader::Field;

/// What one load of the plugin is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The role, with everything that belongs to it.
    pub role: Role,
}

/// The two things that the module can be.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each load of the plugin, and a box would serve nobody"
)]
#[derive(Debug, Clone, PartialEq)]
pub enum Role {
    /// An HTTP filter, which may stand by as the publisher too.
    Filter(FilterConfig),
    /// The bootstrap singleton that fetches the index for every worker thread.
    Publisher(PublisherRole),
}

// === impl Config ===

impl Config {
    /// Reads the bytes of Envoy's plugin configuration.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with the path of its field and what to write instead.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(ConfigError::whole("is empty", "one JSON object with at least the field pools"));
        }
        let node: Node = serde_json::from_slice(bytes).map_err(|source| {
            ConfigError::whole(
                &format!("is not JSON ({source})"),
                "one JSON object with at least the field pools",
            )
        })?;
        let root = Field::root(&node);
        let role = match root.member("role")? {
            None => "filter",
            Some(field) => field.one_of(&["filter", "publisher"])?,
        };
        let role = match role {
            "publisher" => Role::Publisher(publisher::read_role(&root)?),
            _ => Role::Filter(filter::read_role(&root)?),
        };
        Ok(Self { role })
    }
}
