//! The collector.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bootstrap::POOL;
use crate::engine::Endpoints;
use crate::process::Process;
use crate::prometheus::Samples;
use crate::{ports, wait, workspace};

const START_DEADLINE: Duration = Duration::from_secs(10);
const READY_DEADLINE: Duration = Duration::from_secs(20);

/// A running `warmroute-collector`. Its port stays the same when it is started again.
#[derive(Debug)]
pub struct Collector {
    dir: PathBuf,
    address: SocketAddr,
    process: Process,
}

/// A prompt and its namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Question {
    /// Token IDs.
    pub tokens: Vec<u32>,
    /// The LoRA adapter.
    pub lora: Option<String>,
    /// The cache salt.
    pub salt: Option<String>,
}

/// What the collector tells of one worker, as far as scenarios need it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct WorkerView {
    /// Where it serves.
    pub worker: SocketAddr,
    /// `up` or `down`.
    pub state: String,
    /// Whether its events are connected; unknown before the first time.
    pub connected: Option<bool>,
    /// What has come of it.
    pub received: Received,
}

/// What has come of a worker.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Received {
    /// Messages.
    pub frames: u64,
    /// Seconds since the last one.
    pub last_event_age_seconds: Option<f64>,
}

#[derive(Deserialize)]
struct Workers {
    workers: Vec<WorkerView>,
}

#[derive(Deserialize)]
struct Explained {
    workers: Vec<Explaining>,
}

#[derive(Deserialize)]
struct Explaining {
    worker: SocketAddr,
    cached_blocks: ByTier,
}

/// Each tier counts what the faster ones hold, too: the last one is all.
#[derive(Deserialize)]
struct ByTier {
    external: u64,
}

// === impl Collector ===

impl Collector {
    /// Starts a collector with `config`, whose `listen` is set, and waits until it serves. It need not be ready then.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(dir: &Path, mut config: Value) -> Result<Self> {
        let address = ports::free()?;
        config
            .as_object_mut()
            .context("the collector's configuration is no object")?
            .insert("listen".to_owned(), json!(address));
        // JSON is YAML.
        std::fs::write(dir.join("collector.yaml"), serde_json::to_string_pretty(&config)?)?;
        let process = spawn(dir)?;
        let mut collector = Self { dir: dir.to_path_buf(), address, process };
        collector.wait_until_live().await?;
        Ok(collector)
    }

    /// Where it serves.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://…`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The process, to freeze it or to read its log.
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Waits until it has heard or replayed every engine.
    ///
    /// # Errors
    /// When it is not ready in time.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        self.wait_for(READY_DEADLINE, "/readyz").await
    }

    /// How many blocks of a prompt each worker holds.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn explain(&self, question: &Question) -> Result<BTreeMap<SocketAddr, u64>> {
        let url = format!("{}/v1/pools/{POOL}/explain", self.url());
        let answer = reqwest::Client::new().post(url).json(question).send().await.context("no answer")?;
        let explained: Explained = answer.error_for_status()?.json().await?;
        let blocks = |worker: Explaining| (worker.worker, worker.cached_blocks.external);
        Ok(explained.workers.into_iter().map(blocks).collect())
    }

    /// Its workers, as `warmroute-collector inspect` tells of them.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn workers(&self) -> Result<Vec<WorkerView>> {
        let page = get(&self.url(), &format!("/v1/pools/{POOL}/workers")).await?;
        Ok(serde_json::from_str::<Workers>(&page)?.workers)
    }

    /// What it counts.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<Samples> {
        Samples::parse(&get(&self.url(), "/metrics").await?)
    }

    /// Ends it as an orchestrator would.
    ///
    /// # Errors
    /// When it has to be killed.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.process.stop().await
    }

    /// Kills it as the kernel would.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill_hard(&mut self) -> Result<()> {
        self.process.kill_hard()
    }

    /// Starts it again on the same port.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill_hard()?;
        self.process = spawn(&self.dir)?;
        self.wait_until_live().await
    }

    async fn wait_until_live(&mut self) -> Result<()> {
        self.wait_for(START_DEADLINE, "/healthz").await
    }

    async fn wait_for(&mut self, deadline: Duration, path: &str) -> Result<()> {
        let url = self.url();
        let process = &mut self.process;
        let waited = wait::until_ok(deadline, format!("the collector's {path}"), async || {
            if let Err(ended) = process.check_alive() {
                return Ok(Err(ended));
            }
            get(&url, path).await.map(|_| Ok(()))
        });
        match waited.await {
            Ok(live) => live,
            Err(error) => Err(error.context(self.process.log_tail(20))),
        }
    }
}

/// A configuration of one pool, the shipped configuration's, with `engines` as its workers.
#[must_use]
pub fn config(block_size: u32, engines: &[Endpoints]) -> Value {
    let workers: Vec<Value> = engines
        .iter()
        .map(|Endpoints { address, events, replay }| {
            json!({ "address": address, "events": events, "replay": replay })
        })
        .collect();
    json!({ "pools": [{ "name": POOL, "block_size": block_size, "base_models": ["sim"], "workers": workers }] })
}

async fn get(base: &str, path: &str) -> Result<String> {
    let answer = reqwest::get(format!("{base}{path}")).await.context("no answer")?;
    let status = answer.status();
    let text = answer.text().await?;
    ensure!(status.is_success(), "{status}: {text}");
    Ok(text)
}

fn spawn(dir: &Path) -> Result<Process> {
    let mut command = Command::new(workspace::program("warmroute-collector")?);
    command.args(["run", "--config"]).arg(dir.join("collector.yaml"));
    Process::spawn("collector", &mut command, &dir.join("collector.out"), &dir.join("collector.log"))
}
