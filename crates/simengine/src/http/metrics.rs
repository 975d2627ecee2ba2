//! `GET /metrics`: vLLM's names, in Prometheus' text format.

use std::fmt::Write;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::App;
use crate::config::Config;
use crate::scheduler::{Load, Totals};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One metric with one value.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: f64,
}

pub(super) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let (load, totals) = app.engine.load();
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], render(&app.config, app.started, load, totals))
}

/// `started` in seconds since 1970.
fn render(config: &Config, started: f64, load: Load, totals: Totals) -> String {
    let labels = format!("engine=\"0\",model_name=\"{}\"", escape(&config.model));
    let mut text = String::new();
    for metric in gauges(load).into_iter().chain(counters(totals)) {
        metric.write(&mut text, &labels);
    }
    let info = format!(
        "block_size=\"{}\",enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"{}\"",
        config.block_size, config.num_blocks,
    );
    Metric::gauge("vllm:cache_config_info", "The cache's configuration", 1.0).write(&mut text, &info);
    Metric::gauge("process_start_time_seconds", "Start of the process, in seconds since 1970", started)
        .write(&mut text, "");
    text
}

fn gauges(load: Load) -> [Metric; 3] {
    [
        Metric::gauge("vllm:num_requests_running", "Requests that hold blocks", load.running as f64),
        Metric::gauge("vllm:num_requests_waiting", "Requests that wait", load.waiting as f64),
        Metric::gauge(
            "vllm:kv_cache_usage_perc",
            "Part of the blocks that requests hold, 0 to 1",
            load.held_share,
        ),
    ]
}

fn counters(totals: Totals) -> [Metric; 6] {
    let prefilled = totals.queried_tokens;
    [
        Metric::counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up", totals.queried_tokens),
        Metric::counter("vllm:prefix_cache_hits_total", "Prompt tokens found", totals.hit_tokens),
        Metric::counter("vllm:num_preemptions_total", "Requests that lost their blocks", totals.preemptions),
        Metric::counter("vllm:prompt_tokens_total", "Prompt tokens admitted", prefilled),
        Metric::counter("vllm:generation_tokens_total", "Output tokens", totals.generated_tokens),
        Metric::counter(
            "vllm:request_success_total",
            "Requests that ran to their end",
            totals.finished_requests,
        ),
    ]
}

/// A label's value, as the text format wants it.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

// === impl Metric ===

impl Metric {
    fn gauge(name: &'static str, help: &'static str, value: f64) -> Self {
        Self { name, kind: "gauge", help, value }
    }

    fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, kind: "counter", help, value: value as f64 }
    }

    fn write(&self, text: &mut String, labels: &str) {
        let Self { name, kind, help, value } = self;
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        // Writing to a string cannot fail.
        let _written = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{labels} {value}\n");
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn writes_vllm_names_with_labels() {
        let config = Config::parse_from(["simengine", "--model", "a\"b"]);
        let load = Load { running: 2, waiting: 1, held_share: 0.25 };
        let totals = Totals { queried_tokens: 10, hit_tokens: 4, ..Totals::default() };
        let text = render(&config, 5.5, load, totals);
        for line in [
            "# TYPE vllm:num_requests_running gauge",
            "vllm:num_requests_running{engine=\"0\",model_name=\"a\\\"b\"} 2",
            "vllm:num_requests_waiting{engine=\"0\",model_name=\"a\\\"b\"} 1",
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a\\\"b\"} 0.25",
            "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"a\\\"b\"} 10",
            "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"a\\\"b\"} 4",
            "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"4096\"} 1",
            "process_start_time_seconds 5.5",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
    }
}
