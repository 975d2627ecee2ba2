//! A chart of one figure: for each load a group of bars, a bar for each policy.

use std::fmt::Write as _;

use crate::figures::Row;

/// What a chart shows.
pub(crate) struct Figure {
    /// Its name in the file's name.
    pub(crate) name: &'static str,
    title: &'static str,
    of: fn(&Row) -> f64,
}

/// All figures.
pub(crate) const FIGURES: [Figure; 6] = [
    Figure {
        name: "cached_share",
        title: "Share of the prompts' tokens that was cached",
        of: |row| row.cached_share,
    },
    Figure { name: "ttft_p50", title: "Time to first token, p50, in ms", of: |row| row.ttft_ms_p50 },
    Figure { name: "ttft_p90", title: "Time to first token, p90, in ms", of: |row| row.ttft_ms_p90 },
    Figure { name: "ttft_p99", title: "Time to first token, p99, in ms", of: |row| row.ttft_ms_p99 },
    Figure { name: "throughput", title: "Requests a second", of: |row| row.throughput_rps },
    Figure {
        name: "imbalance",
        title: "Requests in hand: the most of a worker against the mean",
        of: |row| row.imbalance,
    },
];

const BAR: f64 = 16.0;
const LABELS: f64 = 120.0;
const BARS: f64 = 480.0;
const TOP: f64 = 40.0;
const GAP: f64 = 28.0;

/// Draws a figure of the rows, in their order. A bar that is more than eight times as long as the shortest is cut: its
/// number tells its length.
pub(crate) fn svg(workload: &str, figure: &Figure, rows: &[&Row]) -> String {
    let values = || rows.iter().map(|row| (figure.of)(row)).filter(|value| value.is_finite() && *value > 0.0);
    let longest = values().fold(0.0, f64::max).min(8.0 * values().fold(f64::INFINITY, f64::min));
    let mut bars = String::new();
    let (mut y, mut load) = (TOP, f64::NAN);
    for row in rows {
        if row.load != load {
            load = row.load;
            y += GAP;
            let _ = writeln!(bars, r#"<text x="8" y="{:.0}" font-weight="bold">load {load}</text>"#, y - 6.0);
        }
        let value = (figure.of)(row);
        let length = if longest > 0.0 { BARS * (value / longest).clamp(0.0, 1.0) } else { 0.0 };
        let (policy, text, height) = (&row.policy, y + BAR - 4.0, BAR - 3.0);
        let _ = writeln!(
            bars,
            r#"<text x="{:.0}" y="{text:.0}" text-anchor="end">{policy}</text><rect x="{LABELS}" y="{y:.0}" width="{length:.1}" height="{height}" fill="{}"/><text x="{:.1}" y="{text:.0}">{value}</text>"#,
            LABELS - 6.0,
            colour(policy),
            LABELS + length + 5.0,
        );
        y += BAR;
    }
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{:.0}" height="{:.0}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="8" y="24" font-size="15">{workload}: {}</text>
{bars}</svg>
"#,
        LABELS + BARS + 90.0,
        y + 12.0,
        figure.title,
    )
}

fn colour(policy: &str) -> &'static str {
    match policy {
        "default" => "#c8502d",
        "ideal" => "#4a4a4a",
        "cost" | "sticky" | "prefix" | "least_load" => "#e3a78f",
        _ => "#8fa9c4",
    }
}
