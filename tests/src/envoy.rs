//! Envoy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;

use crate::bootstrap::{Addresses, Bootstrap};
use crate::process::Process;
use crate::prometheus::Samples;
use crate::{envoy_binary, ports, wait};

const START_DEADLINE: Duration = Duration::from_secs(30);

/// How long a new configuration may take to be accepted.
const RELOAD_DEADLINE: Duration = Duration::from_secs(10);

/// A running Envoy. Its ports stay the same when it is started again.
#[derive(Debug)]
pub struct Envoy {
    dir: PathBuf,
    options: Options,
    addresses: Addresses,
    process: Process,
    /// Of the listeners' file, where there is one.
    version: u64,
}

/// How Envoy is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Worker threads.
    pub concurrency: u32,
    /// More flags, as `--component-log-level wasm:debug`.
    pub flags: Vec<String>,
    /// Whether the listeners come from a file that [`Envoy::reload`] changes.
    pub reloadable: bool,
}

// === impl Envoy ===

impl Envoy {
    /// Starts an Envoy with `bootstrap`, whose addresses are set, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(dir: &Path, bootstrap: &mut Bootstrap, options: Options) -> Result<Self> {
        let addresses = Addresses { warmroute: ports::free()?, plain: ports::free()?, admin: ports::free()? };
        bootstrap.set_addresses(&addresses)?;
        if options.reloadable {
            let (rest, listeners) = bootstrap.split_listeners(&listeners_path(dir), 0)?;
            fs::write(listeners_path(dir), listeners.to_string())?;
            fs::write(config_path(dir), rest.to_json())?;
        } else {
            fs::write(config_path(dir), bootstrap.to_json())?;
        }
        let process = spawn(dir, &options)?;
        let mut envoy = Self { dir: dir.to_path_buf(), options, addresses, process, version: 0 };
        envoy.wait_until_ready().await?;
        Ok(envoy)
    }

    /// Gives the running Envoy the listeners of `bootstrap`, and waits until it has taken them.
    ///
    /// # Errors
    /// When it refuses them (its log says why; the old ones stay), or was not started as reloadable.
    pub async fn reload(&mut self, bootstrap: &Bootstrap) -> Result<()> {
        ensure!(self.options.reloadable, "this Envoy was not started as reloadable");
        self.version += 1;
        let path = listeners_path(&self.dir);
        let (_, listeners) = bootstrap.split_listeners(&path, self.version)?;
        let rejected = self.rejected_reloads().await?;
        // Envoy sees a file that is moved into place, and never half of one.
        let new = path.with_extension("new");
        fs::write(&new, listeners.to_string())?;
        fs::rename(&new, &path)?;
        let want = format!("listener_manager.lds.version_text: \"{}\"", self.version);
        let url = format!("{}/stats?filter=^listener_manager.lds.version_text", self.admin_url());
        wait::until_ok(RELOAD_DEADLINE, "Envoy to take its new listeners", async || {
            if self.rejected_reloads().await? > rejected {
                return Ok(Err(anyhow!("Envoy refuses the listeners:\n{}", self.process.log_tail(5))));
            }
            let page = get(&url).await?;
            ensure!(page.trim() == want, "{page}");
            Ok(Ok(()))
        })
        .await?
    }

    async fn rejected_reloads(&self) -> Result<u64> {
        let name = "listener_manager.lds.update_rejected";
        Ok(self.stats(name).await?.get(name).copied().unwrap_or_default())
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

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        self.process.log_tail(lines)
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

    /// The medians of the histograms whose name matches `filter`, since Envoy started, by their full name.
    ///
    /// # Errors
    /// When Envoy does not answer.
    pub async fn medians(&self, filter: &str) -> Result<BTreeMap<String, f64>> {
        let url = reqwest::Url::parse_with_params(
            &format!("{}/stats", self.admin_url()),
            &[
                ("format", "json"),
                ("histogram_buckets", "summary"),
                ("type", "Histograms"),
                ("filter", filter),
            ],
        )?;
        let page: serde_json::Value = serde_json::from_str(&get(url.as_str()).await?)?;
        let list = |value: Option<&serde_json::Value>| value.and_then(|value| value.as_array().cloned());
        let quantiles = list(page.pointer("/stats/0/histograms/supported_quantiles")).unwrap_or_default();
        let median = quantiles.iter().position(|percent| percent.as_f64() == Some(50.0));
        let median = median.context("Envoy tells no medians")?;
        let histograms = list(page.pointer("/stats/0/histograms/computed_quantiles")).unwrap_or_default();
        let of = |histogram: &serde_json::Value| {
            let name = histogram.get("name")?.as_str()?.to_owned();
            Some((name, histogram.pointer(&format!("/values/{median}/cumulative"))?.as_f64()?))
        };
        Ok(histograms.iter().filter_map(of).collect())
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
        self.process = spawn(&self.dir, &self.options)?;
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

fn spawn(dir: &Path, options: &Options) -> Result<Process> {
    let mut command = Command::new(envoy_binary::path()?);
    command.args(["--concurrency", &options.concurrency.to_string()]);
    // Hot restart would need an ID that no other Envoy on this machine has.
    command.args(["--disable-hot-restart", "--config-path"]).arg(config_path(dir)).args(&options.flags);
    Process::spawn("envoy", &mut command, &dir.join("envoy.out"), &dir.join("envoy.log"))
}

fn config_path(dir: &Path) -> PathBuf {
    dir.join("envoy.json")
}

fn listeners_path(dir: &Path) -> PathBuf {
    dir.join("listeners.json")
}
