//! What the tests of the running collector share.
#![allow(unreachable_pub, dead_code, reason = "several test programs share it, each with a part")]

pub mod engine;
pub mod mirror;
pub mod proxy;
pub mod trtllm;

use std::time::Duration;

use tokio::time::Instant;
use warmroute_collector::config::Config;
use warmroute_collector::server::{Reloader, Server};

/// The longest that anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(20);

/// A collector that runs in the test's process.
pub struct Collector {
    pub url: String,
    reloader: Reloader,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

// === impl Collector ===

impl Collector {
    /// One pool `llama` with blocks of 2 tokens; `workers` are the entries of its list, in YAML.
    pub async fn start(workers: &[String], options: &str) -> Self {
        Self::start_with("", workers, options).await
    }

    /// The same with `top` as lines of the configuration itself.
    pub async fn start_with(top: &str, workers: &[String], options: &str) -> Self {
        let config = config_with(top, workers, options);
        let server = Server::start(&config).await.unwrap();
        let url = format!("http://{}", server.address().unwrap());
        let reloader = server.reloader();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serving = tokio::spawn(server.serve(async {
            let _ = stopped.await;
        }));
        Self { url, reloader, stop: Some(stop), serving }
    }

    /// Takes over other workers.
    pub async fn reload(&self, workers: &[String], options: &str) {
        self.reloader.apply(&config(workers, options)).await.unwrap();
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        let response = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// The sum of a metric's series whose labels contain `label`.
    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let name = format!("warmroute_collector_{name}");
        let of_name = |line: &&str| {
            line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
        };
        text.lines()
            .filter(of_name)
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
            .sum()
    }

    pub async fn metric_becomes(&self, name: &str, label: &str, value: f64) {
        eventually(&format!("{name} {label} = {value}"), async || self.metric(name, label).await == value)
            .await;
    }

    pub async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.serving.await.unwrap().unwrap();
    }
}

/// One pool `llama` with blocks of 2 tokens.
fn config(workers: &[String], options: &str) -> Config {
    config_with("", workers, options)
}

fn config_with(top: &str, workers: &[String], options: &str) -> Config {
    // Most workers here have an address that nobody answers at.
    let health = if options.contains("health_interval_ms") { "" } else { "health_interval_ms: 0" };
    let gauges = if options.contains("gauges_interval_ms") { "" } else { "gauges_interval_ms: 0" };
    let text = format!(
        "listen: 127.0.0.1:0\nready_timeout_ms: 15000\n{top}\npools:\n  - name: llama\n    block_size: 2\n    \
         expected_blocks: 40\n    {options}\n    {health}\n    {gauges}\n    workers: [{}]\n",
        workers.join(", ")
    );
    Config::parse(&text).unwrap()
}

/// Waits until something is so; fails at the deadline.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
