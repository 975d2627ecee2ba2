//! Reading the Prometheus text format, as far as scenarios need it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// What a `/metrics` page says.
#[derive(Debug, Default, Clone)]
pub struct Samples(Vec<Sample>);

/// One line of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The series' name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

// === impl Samples ===

impl Samples {
    /// Reads a page.
    ///
    /// # Errors
    /// When a line is neither a comment nor a sample.
    pub fn parse(page: &str) -> Result<Self> {
        let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples =
            lines.map(|line| sample(line).with_context(|| format!("not a Prometheus sample: {line}")));
        samples.collect::<Result<_>>().map(Self)
    }

    /// All samples of `name` whose labels include `labels`.
    pub fn series<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            sample.name == name
                && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|is| is == value))
        })
    }

    /// The sum of all samples of `name` whose labels include `labels`; 0 where there are none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        // Not `Sum`, which starts at -0.0.
        self.series(name, labels).fold(0.0, |sum, sample| sum + sample.value)
    }

    /// The sums of the samples of `name` whose labels include `labels`, by the value of the label `key`.
    #[must_use]
    pub fn sums_by(&self, name: &str, key: &str, labels: &[(&str, &str)]) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for sample in self.series(name, labels) {
            if let Some(label) = sample.labels.get(key) {
                *sums.entry(label.clone()).or_default() += sample.value;
            }
        }
        sums
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, labels)) = series.split_once('{') else {
        return Some(Sample { name: series.to_owned(), labels: BTreeMap::new(), value });
    };
    Some(Sample { name: name.to_owned(), labels: parse_labels(labels.strip_suffix('}')?)?, value })
}

/// `a="1",b="x\"y"`
fn parse_labels(mut rest: &str) -> Option<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (key, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.chars();
        loop {
            match characters.next()? {
                '"' => break,
                '\\' => match characters.next()? {
                    'n' => value.push('\n'),
                    escaped => value.push(escaped),
                },
                plain => value.push(plain),
            }
        }
        labels.insert(key.to_owned(), value);
        rest = characters.as_str();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::Samples;

    const PAGE: &str = r#"
# TYPE warmroute_requests_total counter
warmroute_requests_total{outcome="steered",reason="cached",pool="a"} 3
warmroute_requests_total{outcome="steered",reason="load",pool="a"} 4
warmroute_requests_total{outcome="fallback",reason="q\"u,o}te",pool="a"} 1
envoy_server_live{} 1
up 0.5
"#;

    #[test]
    fn sums_what_matches() {
        let page = Samples::parse(PAGE).unwrap();
        assert_eq!(page.sum("warmroute_requests_total", &[("outcome", "steered")]), 7.0);
        assert_eq!(page.sum("warmroute_requests_total", &[("reason", "q\"u,o}te"), ("pool", "a")]), 1.0);
        assert_eq!(page.sum("warmroute_requests_total", &[("pool", "b")]), 0.0);
        assert_eq!(page.sum("envoy_server_live", &[]), 1.0);
        assert_eq!(page.sum("up", &[]), 0.5);
        let by_reason = page.sums_by("warmroute_requests_total", "reason", &[("outcome", "steered")]);
        assert_eq!(by_reason.into_iter().collect::<Vec<_>>(), [("cached".into(), 3.0), ("load".into(), 4.0)]);
    }

    #[test]
    fn refuses_what_is_no_sample() {
        assert!(Samples::parse("nonsense").is_err());
    }
}
