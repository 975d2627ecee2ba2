//! Rounds in which the subjects take turns, and the rows that come of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::stopwatch::Sample;

/// Someone who does the same work as the others.
pub struct Subject<'a> {
    /// Its name in the table.
    pub name: &'static str,
    /// Does the work once.
    pub work: Box<dyn FnMut() -> Sample + 'a>,
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was done.
    pub case: String,
    /// By whom.
    pub subject: &'static str,
    /// Figures by the name of their unit.
    pub figures: BTreeMap<&'static str, f64>,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
}

// === impl Subject ===

impl<'a> Subject<'a> {
    /// A subject by name.
    pub fn new(name: &'static str, work: impl FnMut() -> Sample + 'a) -> Self {
        Self { name, work: Box::new(work) }
    }
}

// === impl Report ===

impl Report {
    /// Lets the subjects take turns for some rounds, after one that does not count. The first is what the others are
    /// held against: `ratio` is the median over the rounds of its share of processor time in theirs.
    pub fn rounds(&mut self, case: &str, rounds: usize, mut subjects: Vec<Subject<'_>>) {
        let mut samples: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
        for round in 0..=rounds {
            for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
                let sample = (subject.work)();
                if round > 0 {
                    samples.push(sample);
                }
            }
        }
        let first = samples.first().cloned().unwrap_or_default();
        for (subject, samples) in subjects.iter().zip(&samples) {
            let median_of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
            let ratios = first.iter().zip(samples).map(|(first, sample)| sample.cpu_ns() / first.cpu_ns());
            let figures = [
                ("ns", median_of(Sample::wall_ns)),
                ("cpu_ns", median_of(Sample::cpu_ns)),
                ("cpu_ratio", median(ratios.collect())),
            ];
            self.add(case, subject.name, figures);
        }
    }

    /// Adds figures of another kind.
    pub fn add(
        &mut self,
        case: &str,
        subject: &'static str,
        figures: impl IntoIterator<Item = (&'static str, f64)>,
    ) {
        let row = Row { case: case.to_owned(), subject, figures: figures.into_iter().collect() };
        let figures: Vec<_> =
            row.figures.iter().map(|(unit, value)| format!("{unit} {}", short(*value))).collect();
        println!("{:<44} {:<24} {}", row.case, row.subject, figures.join("  "));
        self.rows.push(row);
    }

    /// A heading in the table.
    pub fn heading(&self, heading: &str) {
        println!("\n{heading}");
    }

    /// All rows.
    pub fn json(&self) -> Value {
        let row = |row: &Row| json!({ "case": row.case, "subject": row.subject, "figures": row.figures });
        json!({ "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// The value in the middle; of none, 0.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
