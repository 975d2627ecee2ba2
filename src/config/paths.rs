//! Which request paths are read.

use super::error::ConfigError;
use super::reader::Field;

/// A request path, or the beginning of one. The query never takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    /// This path and no other.
    Exact(String),
    /// Every path that begins so; written with a trailing `*`.
    Prefix(String),
}

// === impl PathPattern ===

impl PathPattern {
    /// Whether the pattern takes a path that has no query.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
        }
    }
}

pub(super) fn read(field: &Field<'_>) -> Result<PathPattern, ConfigError> {
    let rule = "a request path that begins with / and has no query, blank or * within";
    let advice = "for example \"/v1/completions\", or \"/v1/*\" for every path that begins so";
    let text = field.text(rule, advice)?;
    let (path, is_prefix) = text.strip_suffix('*').map_or((text, false), |prefix| (prefix, true));
    let legal = |b: u8| b.is_ascii_graphic() && !matches!(b, b'*' | b'?' | b'#');
    if !path.starts_with('/') || !path.bytes().all(legal) {
        return Err(field.must_be(rule, advice));
    }
    Ok(if is_prefix { PathPattern::Prefix(path.to_owned()) } else { PathPattern::Exact(path.to_owned()) })
}

/// The path of an `:path` value: what comes before the query.
pub(super) fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or(path)
}
