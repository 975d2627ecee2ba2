//! The figures as a picture: bars for each subject, a panel for each length of prompt.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::report::{Report, Row};

const WIDTH: f64 = 760.0;
const NAMES: f64 = 190.0;
const BAR: f64 = 18.0;
const GAP: f64 = 6.0;
const TITLE: f64 = 34.0;
/// Room for the figure behind a bar.
const FIGURE: f64 = 70.0;

/// A chart: its file, what it shows, and of what.
struct Chart {
    file: &'static str,
    title: &'static str,
    value: fn(&Row) -> f64,
}

const CHARTS: [Chart; 2] = [
    Chart { file: "overhead-cpu.svg", title: "CPU time per request, µs", value: |row| row.cpu_us },
    Chart { file: "overhead-p50.svg", title: "latency p50, ms", value: |row| row.p50_ms },
];

/// Writes the charts into `dir`.
pub(super) fn write(report: &Report, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for chart in CHARTS {
        let path = dir.join(chart.file);
        std::fs::write(&path, chart.draw(&report.rows()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

// === impl Chart ===

impl Chart {
    fn draw(&self, rows: &[Row]) -> String {
        let mut body = String::new();
        let mut y = 0.0;
        for panel in rows.chunk_by(|a, b| a.tokens == b.tokens) {
            let tokens = panel.first().map(|row| row.tokens).unwrap_or_default();
            y += TITLE;
            let title = format!("{}, prompts of {tokens} tokens", self.title);
            text(&mut body, (0.0, y - 10.0), "bold", &title);
            let most = panel.iter().map(self.value).fold(f64::MIN_POSITIVE, f64::max);
            for row in panel {
                let value = (self.value)(row);
                let length = (WIDTH - NAMES - FIGURE) * value / most;
                text(&mut body, (0.0, y + BAR - 5.0), "normal", row.subject);
                let colour = if row.subject.starts_with("warmroute") { "#1f77b4" } else { "#9aa5b1" };
                // Writing to a String cannot fail.
                let _ = writeln!(
                    body,
                    r#"<rect x="{NAMES}" y="{y}" width="{length:.1}" height="{BAR}" fill="{colour}"/>"#
                );
                let figure = if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") };
                text(&mut body, (NAMES + length + 6.0, y + BAR - 5.0), "normal", &figure);
                y += BAR + GAP;
            }
        }
        // White behind it: the page that shows it may be dark.
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-10 0 {} {}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect x=\"-10\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n",
            WIDTH + 20.0,
            y + 10.0
        )
    }
}

fn text(body: &mut String, (x, y): (f64, f64), weight: &str, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(body, r#"<text x="{x:.1}" y="{y:.1}" font-weight="{weight}">{text}</text>"#);
}
