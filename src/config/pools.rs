//! The pools that a filter or a publisher serves.

use warmroute_routing::choose::Rule;

use super::error::ConfigError;
use super::names::{cluster_name, pool_name};
use super::policy;
use super::prompts::{self, PromptsConfig};
use super::reader::{Field, Fields};

/// A pool and the Envoy clusters whose requests belong to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// The pool's name in the collector's configuration. Unique.
    pub name: String,
    /// The clusters' names. Empty in at most one pool, which takes what no other pool takes.
    pub clusters: Vec<String>,
    /// The rule by which a worker is chosen.
    pub policy: Rule,
    /// Where text prompts are tokenized, if they are.
    pub prompts: Option<PromptsConfig>,
}

const ADVICE: &str = "a list such as [{\"name\": \"llama\", \"clusters\": [\"workers\"]}]";

/// The pools of a filter.
pub(super) fn read(root: &Fields<'_>) -> Result<Vec<Pool>, ConfigError> {
    let mut pools: Vec<Pool> = Vec::new();
    let mut names = Names::default();
    for item in items(root, ADVICE)? {
        let fields = item.fields(&["name", "clusters", "policy", "prompts"])?;
        let name = names.take(&item, &fields)?;
        let clusters = clusters(&item, &fields, &pools)?;
        let policy = fields.get("policy").map(|field| policy::read(&field)).transpose()?.unwrap_or_default();
        let prompts = fields.get("prompts").map(|field| prompts::read(&field)).transpose()?;
        pools.push(Pool { name, clusters, policy, prompts });
    }
    Ok(pools)
}

/// The pools of a publisher, which knows no clusters of workers: names alone.
pub(super) fn read_names(root: &Fields<'_>) -> Result<Vec<String>, ConfigError> {
    let mut names = Names::default();
    for item in items(root, "a list such as [{\"name\": \"llama\"}]")? {
        let fields = item.fields(&["name"])?;
        names.take(&item, &fields)?;
    }
    Ok(names.0)
}

fn items<'a>(root: &Fields<'a>, advice: &str) -> Result<Vec<Field<'a>>, ConfigError> {
    let field = root.required("pools", advice)?;
    let items = field.list("a list of pools", advice)?;
    if items.is_empty() {
        return Err(field.error("must have at least one pool", advice));
    }
    Ok(items)
}

fn clusters(item: &Field<'_>, fields: &Fields<'_>, earlier: &[Pool]) -> Result<Vec<String>, ConfigError> {
    let advice = "a list of names such as [\"workers\"]";
    let given = match fields.get("clusters") {
        None => Vec::new(),
        Some(field) => field.list("a list of the names of Envoy clusters", advice)?,
    };
    if given.is_empty()
        && let Some(other) = earlier.iter().position(|pool| pool.clusters.is_empty())
    {
        return Err(ConfigError::at(
            &format!("{}.clusters", item.path()),
            format!(
                "is empty, but only one pool may take the requests of all other clusters, and pools[{other}] does"
            ),
            advice,
        ));
    }
    let mut clusters: Vec<String> = Vec::new();
    for field in given {
        let name = cluster_name(&field)?;
        if clusters.contains(&name) {
            return Err(field.error(format!("names {name:?} a second time"), "each cluster once"));
        }
        if let Some(other) = earlier.iter().position(|pool| pool.clusters.contains(&name)) {
            return Err(field.error(
                format!("names {name:?}, which belongs to pools[{other}] already"),
                "each cluster in one pool only",
            ));
        }
        clusters.push(name);
    }
    Ok(clusters)
}

/// The names so far.
#[derive(Default)]
struct Names(Vec<String>);

// === impl Names ===

impl Names {
    fn take(&mut self, item: &Field<'_>, fields: &Fields<'_>) -> Result<String, ConfigError> {
        let field = fields.required("name", "the pool's name in the collector's configuration")?;
        let name = pool_name(&field)?;
        if let Some(other) = self.0.iter().position(|earlier| *earlier == name) {
            return Err(ConfigError::at(
                &format!("{}.name", item.path()),
                format!("is {name:?}, as pools[{other}].name is"),
                "each pool once",
            ));
        }
        self.0.push(name.clone());
        Ok(name)
    }
}
