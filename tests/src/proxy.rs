//! Envoy alone, between upstreams and a collector that the scenario brings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::bootstrap::{Bootstrap, Publisher};
use crate::workspace::ScratchDir;
use crate::{Client, Envoy, envoy, wait, workspace};

/// What a filter takes to hear of an index: a publisher's lease, its pauses, and a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// A running Envoy with its logs.
#[derive(Debug)]
pub struct Proxy {
    /// Envoy.
    pub envoy: Envoy,
    dir: ScratchDir,
}

/// What an [`Upstream`](crate::Upstream) says about a request.
#[derive(Debug, Clone)]
pub struct Echo {
    /// Who served it.
    pub served_by: SocketAddr,
    /// The headers that reached it.
    pub headers: Value,
    /// What warmroute says that it decided.
    pub decision: Option<String>,
}

/// How to start a [`Proxy`].
pub struct ProxyOptions<'a> {
    /// Names the logs.
    pub name: &'a str,
    /// The members of the cluster `workers`.
    pub workers: &'a [SocketAddr],
    /// Where the publisher asks.
    pub collector: SocketAddr,
    /// Who publishes.
    pub publisher: Publisher,
    /// The plugin.
    pub plugin: PathBuf,
    /// A merge patch to the filter's configuration.
    pub filter: Value,
    /// A change of the bootstrap, after everything else.
    pub edit: Option<Edit>,
    /// Envoy's worker threads.
    pub concurrency: u32,
}

/// Changes a bootstrap.
pub type Edit = fn(&mut Bootstrap) -> Result<()>;

// === impl ProxyOptions ===

impl<'a> ProxyOptions<'a> {
    /// The shipped plugin and configuration.
    ///
    /// # Errors
    /// When the plugin is not built.
    pub fn new(name: &'a str, workers: &'a [SocketAddr], collector: SocketAddr) -> Result<Self> {
        let plugin = workspace::plugin()?;
        let publisher = Publisher::Shipped;
        Ok(Self {
            name,
            workers,
            collector,
            publisher,
            plugin,
            filter: json!({}),
            edit: None,
            concurrency: 2,
        })
    }

    /// Starts Envoy.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(self) -> Result<Proxy> {
        let dir = ScratchDir::new(self.name)?;
        let mut bootstrap = Bootstrap::shipped()?;
        bootstrap.set_plugin(&self.plugin)?;
        bootstrap.set_endpoints("workers", self.workers)?;
        bootstrap.set_endpoints("workers-plain", self.workers)?;
        bootstrap.set_endpoints("warmroute-collector", &[self.collector])?;
        bootstrap.set_publisher(self.publisher)?;
        bootstrap.patch_filter(&self.filter)?;
        // A lease that ends soon keeps the scenarios short.
        let quick = json!({ "publisher": { "lease_ms": 1000, "long_poll_ms": 1000, "tick_ms": 50 } });
        if matches!(self.publisher, Publisher::Shipped | Publisher::Worker) {
            bootstrap.patch_filter(&quick)?;
        }
        if matches!(self.publisher, Publisher::Shipped | Publisher::Singleton) {
            bootstrap.patch_singleton(&quick)?;
        }
        if let Some(edit) = self.edit {
            edit(&mut bootstrap)?;
        }
        let options = envoy::Options { concurrency: self.concurrency, flags: Vec::new(), reloadable: false };
        let envoy = Envoy::start(dir.path(), &mut bootstrap, options).await?;
        Ok(Proxy { envoy, dir })
    }
}

// === impl Proxy ===

impl Proxy {
    /// A client over HTTP/1.1.
    ///
    /// # Errors
    /// When none can be made.
    pub fn client(&self) -> Result<Client> {
        Client::http1(self.envoy.url())
    }

    /// Sends a prompt, to upstreams that echo.
    ///
    /// # Errors
    /// When it is not served.
    pub async fn send(&self, prompt: &[u32], headers: &[(&str, &str)]) -> Result<Echo> {
        let body = crate::client::completion(prompt, 1);
        let mut request = self.client()?.post("/v1/completions").json(&body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.context("no answer")?;
        ensure!(response.status().is_success(), "status {}", response.status());
        let decision = response.headers().get("x-warmroute-decision");
        let decision = decision.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut echo: Value = response.json().await?;
        let served_by = echo.get("served_by").and_then(Value::as_str).context("no echo")?.parse()?;
        let headers = echo.get_mut("headers").map(Value::take).unwrap_or_default();
        Ok(Echo { served_by, headers, decision })
    }

    /// Sends a prompt again and again until `worker` serves it because warmroute said so.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn wait_until_steered_to(&self, worker: SocketAddr, prompt: &[u32]) -> Result<()> {
        let echo = self.wait_for_decision(&format!("steered worker={worker} "), prompt, &[]).await?;
        ensure!(echo.served_by == worker, "{echo:?}");
        Ok(())
    }

    /// Sends a prompt again and again until the decision about it begins like this.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn wait_for_decision(
        &self,
        begin: &str,
        prompt: &[u32],
        headers: &[(&str, &str)],
    ) -> Result<Echo> {
        let waited = wait::until_ok(DEADLINE, format!("the decision {begin}"), async || {
            let echo = self.send(prompt, headers).await?;
            let decision = echo.decision.as_deref().unwrap_or_default();
            ensure!(decision.starts_with(begin), "{decision}");
            Ok(echo)
        });
        waited.await.with_context(|| self.envoy.log())
    }

    /// Ends it and removes its logs.
    ///
    /// # Errors
    /// When it had died or had to be killed.
    pub async fn stop(mut self) -> Result<()> {
        self.envoy.process_mut().check_alive()?;
        self.envoy.stop().await?;
        self.dir.remove()
    }
}
