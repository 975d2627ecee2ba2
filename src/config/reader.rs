//! Reads fields out of the tree, each with its path, so that every error can name the field.

use std::ops::RangeInclusive;

use super::error::ConfigError;
use super::node::Node;

/// One value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    path: String,
    node: &'a Node,
}

/// The members of one object: only known ones, none twice.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    path: String,
    members: &'a [(String, Node)],
}

// === impl Field ===

impl<'a> Field<'a> {
    pub(super) fn root(node: &'a Node) -> Self {
        Self { path: String::new(), node }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// An error at this field. `problem` completes "FIELD: ...", `advice` completes "write ...".
    pub(super) fn error(&self, problem: impl Into<String>, advice: impl Into<String>) -> ConfigError {
        ConfigError::at(&self.path, problem, advice)
    }

    /// An error at this field that says what it must be and quotes what it is.
    pub(super) fn must_be(&self, rule: &str, advice: impl Into<String>) -> ConfigError {
        self.error(format!("must be {rule}, not {}", self.node), advice)
    }

    /// A member of the object, before the other members are looked at.
    pub(super) fn member(&self, name: &str) -> Result<Option<Field<'a>>, ConfigError> {
        let members = self.members()?;
        Ok(find(&self.path, members, name))
    }

    /// The object's members.
    ///
    /// # Errors
    ///
    /// The field is no object, or has a member that is not in `known`, or has one twice.
    pub(super) fn fields(&self, known: &[&str]) -> Result<Fields<'a>, ConfigError> {
        let members = self.members()?;
        for (position, (name, _)) in members.iter().enumerate() {
            let path = join(&self.path, name);
            if !known.contains(&name.as_str()) {
                let advice = format!("only {}", known.join(", "));
                return Err(ConfigError::at(&path, "is not a field that can stand here", advice));
            }
            if members.iter().take(position).any(|(earlier, _)| earlier == name) {
                return Err(ConfigError::at(&path, "is given twice", "it once"));
            }
        }
        Ok(Fields { path: self.path.clone(), members })
    }

    pub(super) fn text(&self, rule: &str, advice: &str) -> Result<&'a str, ConfigError> {
        match self.node {
            Node::Text(text) => Ok(text),
            _ => Err(self.must_be(rule, advice)),
        }
    }

    pub(super) fn list(&self, rule: &str, advice: &str) -> Result<Vec<Field<'a>>, ConfigError> {
        let Node::List(items) = self.node else {
            return Err(self.must_be(rule, advice));
        };
        let item = |(index, node)| Field { path: format!("{}[{index}]", self.path), node };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// A text that is one of `choices`.
    pub(super) fn one_of(&self, choices: &[&'a str]) -> Result<&'a str, ConfigError> {
        let chosen = match self.node {
            Node::Text(text) => choices.iter().copied().find(|choice| choice == text),
            _ => None,
        };
        chosen.ok_or_else(|| {
            let quoted: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
            self.must_be(&quoted.join(" or "), "one of them")
        })
    }

    fn members(&self) -> Result<&'a [(String, Node)], ConfigError> {
        match self.node {
            Node::Object(members) => Ok(members),
            _ => Err(self.must_be("an object", "its fields in braces")),
        }
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    pub(super) fn get(&self, name: &str) -> Option<Field<'a>> {
        find(&self.path, self.members, name)
    }

    pub(super) fn required(&self, name: &str, advice: &str) -> Result<Field<'a>, ConfigError> {
        self.get(name)
            .ok_or_else(|| ConfigError::at(&join(&self.path, name), "is missing and has no default", advice))
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, ConfigError> {
        match self.get(name) {
            None => Ok(default),
            Some(Field { node: Node::Bool(value), .. }) => Ok(*value),
            Some(field) => Err(field.must_be("true or false", "one of them, without quotes")),
        }
    }

    /// A whole number within `range`.
    pub(super) fn number<T>(&self, name: &str, range: RangeInclusive<T>, default: T) -> Result<T, ConfigError>
    where
        T: TryFrom<u64> + PartialOrd + std::fmt::Display,
    {
        let Some(field) = self.get(name) else { return Ok(default) };
        let given = match field.node {
            Node::Whole(value) => T::try_from(*value).ok(),
            _ => None,
        };
        given.filter(|value| range.contains(value)).ok_or_else(|| {
            let rule = format!("a whole number from {} to {}", range.start(), range.end());
            field.must_be(&rule, format!("such a number, or leave it out for {default}"))
        })
    }
}

impl Fields<'_> {
    /// Where the object stands.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// A number from 0 to `most`, fractional or not.
    pub(super) fn weight(&self, name: &str, most: f64, default: f64) -> Result<f64, ConfigError> {
        let Some(field) = self.get(name) else { return Ok(default) };
        let given = match field.node {
            Node::Whole(value) => Some(*value as f64),
            Node::Number(value) => Some(*value),
            _ => None,
        };
        given.filter(|value| (0.0..=most).contains(value)).ok_or_else(|| {
            field.must_be(
                &format!("a number from 0 to {most}"),
                format!("such a number, or leave it out for {default}"),
            )
        })
    }
}

fn find<'a>(path: &str, members: &'a [(String, Node)], name: &str) -> Option<Field<'a>> {
    let (_, node) = members.iter().find(|(member, _)| member == name)?;
    Some(Field { path: join(path, name), node })
}

fn join(path: &str, name: &str) -> String {
    // A name that is no plain word would make the path unreadable (or forge lines in a log): it is quoted.
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let name = if plain { name.to_owned() } else { format!("{name:?}") };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}
