//! Showing the figures, to a person and to a program.

use std::fmt;

use serde_json::{Value, json};
use warmroute_e2e::Stack;

use super::figures::{Decisions, Figures};

/// Both ways side by side.
pub(crate) struct Report {
    pub(crate) ideal_cached_share: f64,
    pub(crate) baseline: Figures,
    pub(crate) warmroute: Figures,
    pub(crate) decisions: Decisions,
    pub(crate) errors: usize,
}

// === impl Report ===

impl Report {
    pub(crate) fn to_json(&self) -> Value {
        let Decisions { steered, fallback } = &self.decisions;
        let mut warmroute = json!(self.warmroute);
        if let Value::Object(fields) = &mut warmroute {
            fields.insert("steered".to_owned(), json!(steered));
            fields.insert("fallback".to_owned(), json!(fallback));
        }
        json!({
            "ideal": { "cached_share": self.ideal_cached_share },
            "baseline": self.baseline,
            "warmroute": warmroute,
            "errors": self.errors,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plain, warm) = (&self.baseline, &self.warmroute);
        row(out, "", ["plain Envoy", "warmroute", "ideal"])?;
        let shares = [plain.cached_share, warm.cached_share, self.ideal_cached_share];
        row(out, "prompt tokens from cache", shares.map(|share| format!("{:.1}%", share * 100.0)))?;
        let ms = |time: f64| format!("{time:.1} ms");
        row(out, "time to first token, p50", [ms(plain.ttft_ms.p50), ms(warm.ttft_ms.p50), String::new()])?;
        row(out, "time to first token, p90", [ms(plain.ttft_ms.p90), ms(warm.ttft_ms.p90), String::new()])?;
        let workers = |figures: &Figures| {
            figures.requests_per_worker.values().map(u64::to_string).collect::<Vec<_>>().join(" ")
        };
        row(out, "requests per worker", [workers(plain), workers(warm), String::new()])?;
        row(out, "steered", ["", &self.decisions.steered.to_string(), ""])?;
        for (reason, requests) in &self.decisions.fallback {
            row(out, &format!("fallback: {reason}"), ["", &requests.to_string(), ""])?;
        }
        write!(out, "\nrequests without an answer: {}", self.errors)
    }
}

fn row<S: AsRef<str>>(out: &mut fmt::Formatter<'_>, name: &str, cells: [S; 3]) -> fmt::Result {
    let [plain, warm, ideal] = cells;
    let (plain, warm, ideal) = (plain.as_ref(), warm.as_ref(), ideal.as_ref());
    let line = format!("{name:<28}{plain:>20}{warm:>20}{ideal:>10}");
    writeln!(out, "{}", line.trim_end())
}

/// The prompt to try is the numbers from 1 to this.
pub(crate) const INVITED_TOKENS: u32 = 512;

/// What to try with a stack that is left running.
pub(crate) fn invitation(stack: &Stack) -> String {
    let engines: Vec<String> = stack.engines().iter().map(warmroute_e2e::Engine::url).collect();
    format!(
        "
warmroute    {url}
plain Envoy  {plain}
Envoy admin  {admin}
collector    {collector}
engines      {engines}

This prompt has been computed once; see where it goes now, and why:

  curl -i {url}/v1/completions -H 'content-type: application/json' \\
    -d '{{\"model\":\"sim\",\"max_tokens\":8,\"prompt\":['$(seq -s, 1 {INVITED_TOKENS})']}}'

Ctrl-C ends everything.",
        url = stack.url(),
        plain = stack.plain_url(),
        admin = stack.envoy.admin_url(),
        collector = stack.collector.url(),
        engines = engines.join(" "),
    )
}
