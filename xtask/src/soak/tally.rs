//! What came of the requests.

use std::collections::BTreeMap;

use serde::Serialize;

/// So many failures are told in full.
const TOLD: usize = 20;

/// What came of one request.
pub(crate) enum Fate {
    /// Status 200 and a whole answer.
    Served,
    /// The answer had begun, so that no proxy could have tried again, and its engine was then taken down.
    Cut,
    /// The client left before the answer, as it was told to.
    Left,
    /// Anything else, with what was seen.
    Failed(String),
}

/// Requests by what they are and what came of them.
#[derive(Default)]
pub(crate) struct Tally {
    by_kind: BTreeMap<&'static str, Counts>,
    told: Vec<String>,
}

/// Requests by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) served: u64,
    pub(crate) failed: u64,
    pub(crate) cut: u64,
    pub(crate) left: u64,
}

// === impl Tally ===

impl Tally {
    pub(crate) fn add(&mut self, kind: &'static str, fate: Fate) {
        let counts = self.by_kind.entry(kind).or_default();
        match fate {
            Fate::Served => counts.served += 1,
            Fate::Cut => counts.cut += 1,
            Fate::Left => counts.left += 1,
            Fate::Failed(what) => {
                counts.failed += 1;
                if self.told.len() < TOLD {
                    self.told.push(format!("{kind}: {what}"));
                }
            }
        }
    }

    /// By kind.
    pub(crate) fn by_kind(&self) -> &BTreeMap<&'static str, Counts> {
        &self.by_kind
    }

    /// All kinds that `counted` says.
    pub(crate) fn sum(&self, counted: impl Fn(&str) -> bool) -> Counts {
        let mut sum = Counts::default();
        for (_, counts) in self.by_kind.iter().filter(|(kind, _)| counted(kind)) {
            sum.served += counts.served;
            sum.failed += counts.failed;
            sum.cut += counts.cut;
            sum.left += counts.left;
        }
        sum
    }

    /// The first failures, in full.
    pub(crate) fn failures(&self) -> &[String] {
        &self.told
    }
}

// === impl Counts ===

impl Counts {
    /// However they ended.
    pub(crate) fn all(&self) -> u64 {
        self.served + self.failed + self.cut + self.left
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Fate, Tally};

    #[test]
    fn kinds_are_counted_apart_and_together() {
        let mut tally = Tally::default();
        for (kind, fate) in
            [("a", Fate::Served), ("a", Fate::Failed("503".to_owned())), ("b", Fate::Cut), ("c", Fate::Left)]
        {
            tally.add(kind, fate);
        }
        assert_eq!(tally.sum(|kind| kind != "c"), Counts { served: 1, failed: 1, cut: 1, left: 0 });
        assert_eq!(tally.sum(|_| true).all(), 4);
        assert_eq!(tally.failures(), ["a: 503"]);
    }
}
