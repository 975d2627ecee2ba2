//! Envoy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::bootstrap::{Addresses, Bootstrap};
use crate::process::Process;
use crate::prometheus::Samples;
use crate::{envoy_binary, ports, wait};

const START_DEADLINE: Duration = Duration::from_secs(30);

/// A running Envoy. Its ports stay the same when it is started again.
#[derive(Debug)]
pub struct Envoy {
    dir: PathBuf,
    concurrency: u32,
    addresses: Addresses,
    process: Process,
}

// === impl Envoy ===

impl Envoy {
    /// Starts an Envoy with `bootstrap`, whose addresses are set, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(dir: &Path, bootstrap: &mut Bootstrap, concurrency: u32) -> Result<Self> {
        let addresses = Addresses { warmroute: ports::free()?, plain: ports::free()?, admin: ports::free()? };
        bootstrap.set_addresses(&addresses)?;
        fs::write(config_path(dir), bootstrap.to_json())?;
        let process = spawn(dir, concurrency)?;
        let mut envoy = Self { dir: dir.to_path_buf(), concurrency, addresses, process };
        envoy.wait_until_ready().await?;
        Ok(envoy)
    }

    /// Where clients meet warmroute.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addresses.warmroute)
    }

    /// The same engines without warmroute.
    #[must_use]
    pub fn plain_url(&self) -> String {
        format!("http://{}", self.addresses.plain)
    }

    /// The admin interface.
    #[must_use]
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.addresses.admin)
    }

    /// The process, to freeze it or to see whether it lives.
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// All that it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The counters and gauges whose name matches `filter`, a regular expression, by their full name.
    ///
    /// # Errors
    /// When Envoy does not answer.
    pub async fn stats(&self, filter: &str) -> Result<BTreeMap<String, u64>> {
        let url = reqwest::Url::parse_with_params(
            &format!("{}/stats", self.admin_url()),
            &[("format", "json"), ("filter", filter)],
        )?;
        let page: StatsPage = serde_json::from_str(&get(url.as_str()).await?)?;
        let stats = page.stats.into_iter();
        Ok(stats.filter_map(|stat| Some((stat.name?, stat.value?.as_u64()?))).collect())
    }

    /// Its statistics as a Prometheus server would read them.
    ///
    /// # Errors
    /// When Envoy does not answer.
    pub async fn prometheus(&self) -> Result<Samples> {
        Samples::parse(&get(&format!("{}/stats/prometheus", self.admin_url())).await?)
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

    /// Starts it again on the same ports.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill_hard()?;
        self.process = spawn(&self.dir, self.concurrency)?;
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let url = format!("{}/ready", self.admin_url());
        let process = &mut self.process;
        let waited = wait::until_ok(START_DEADLINE, "Envoy to be ready", async || {
            if let Err(ended) = process.check_alive() {
                return Ok(Err(ended));
            }
            get(&url).await.map(|_| Ok(()))
        });
        match waited.await {
            Ok(ready) => ready,
            Err(error) => Err(error.context(self.process.log_tail(20))),
        }
    }
}

/// What `/stats?format=json` says; histograms come without a name here.
#[derive(Deserialize)]
struct StatsPage {
    stats: Vec<Stat>,
}

#[derive(Deserialize)]
struct Stat {
    name: Option<String>,
    value: Option<serde_json::Value>,
}

/// Lets Envoy check the configuration in `path` without serving it. The plugin is loaded and configured, too.
///
/// # Errors
/// When Envoy refuses it, with what it says.
pub fn validate_file(path: &Path) -> Result<()> {
    let run = Command::new(envoy_binary::path()?)
        .args(["--mode", "validate", "--log-level", "warning", "--config-path"])
        .arg(path)
        .output()
        .context("cannot run Envoy")?;
    if !run.status.success() {
        bail!("Envoy refuses the configuration:\n{}", String::from_utf8_lossy(&run.stderr));
    }
    Ok(())
}

async fn get(url: &str) -> Result<String> {
    let answer = reqwest::get(url).await.context("no answer")?;
    let status = answer.status();
    let text = answer.text().await?;
    ensure!(status.is_success(), "{status}: {text}");
    Ok(text)
}

fn spawn(dir: &Path, concurrency: u32) -> Result<Process> {
    let mut command = Command::new(envoy_binary::path()?);
    command.args(["--concurrency", &concurrency.to_string()]);
    // Hot restart would need an ID that no other Envoy on this machine has.
    command.args(["--disable-hot-restart", "--config-path"]).arg(config_path(dir));
    Process::spawn("envoy", &mut command, &dir.join("envoy.out"), &dir.join("envoy.log"))
}

fn config_path(dir: &Path) -> PathBuf {
    dir.join("envoy.json")
}
