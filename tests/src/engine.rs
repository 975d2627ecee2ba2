//! A simulated engine.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process::Process;
use crate::{ports, wait, workspace};

const START_DEADLINE: Duration = Duration::from_secs(10);

/// A running `warmroute-simengine`. Its ports stay the same when it is started again.
#[derive(Debug)]
pub struct Engine {
    name: String,
    dir: PathBuf,
    flags: Vec<String>,
    address: SocketAddr,
    events: SocketAddr,
    replay: SocketAddr,
    process: Process,
}

/// Where an engine serves and speaks, whatever engine it is.
#[derive(Debug, Clone)]
pub struct Endpoints {
    /// Where it serves, exactly as Envoy and the collector know it.
    pub address: SocketAddr,
    /// Its event publisher, as `tcp://…`.
    pub events: String,
    /// Its replay endpoint, as `tcp://…`.
    pub replay: String,
}

/// The line that an engine prints when it is ready.
#[derive(Deserialize)]
struct Ready {
    listen: SocketAddr,
}

// === impl Engine ===

impl Engine {
    /// Starts an engine with `flags` beside its addresses, and waits until it serves. Its log lies in `dir`.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(dir: &Path, name: &str, flags: &[String]) -> Result<Self> {
        let (address, events, replay) = (ports::free()?, ports::free()?, ports::free()?);
        let (name, dir, flags) = (name.to_owned(), dir.to_path_buf(), flags.to_vec());
        let process = spawn(&name, &dir, &flags, address, events, replay)?;
        let mut engine = Self { name, dir, flags, address, events, replay, process };
        engine.wait_until_ready().await?;
        Ok(engine)
    }

    /// Where it serves, exactly as Envoy and the collector know it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it serves and speaks.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        Endpoints { address: self.address, events: self.events(), replay: self.replay() }
    }

    /// `http://…`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its event publisher, as `tcp://…`.
    #[must_use]
    pub fn events(&self) -> String {
        format!("tcp://{}", self.events)
    }

    /// Its replay endpoint, as `tcp://…`.
    #[must_use]
    pub fn replay(&self) -> String {
        format!("tcp://{}", self.replay)
    }

    /// The process, to freeze it or to read its log.
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.process
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

    /// Starts it again on the same ports, with an empty cache.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill_hard()?;
        self.process = spawn(&self.name, &self.dir, &self.flags, self.address, self.events, self.replay)?;
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let out = out(&self.dir, &self.name);
        let Self { name, process, address, .. } = self;
        let ready = wait::until(START_DEADLINE, format!("{name} to be ready"), async || {
            let line = std::fs::read_to_string(&out).ok()?;
            // A line that is not yet ended may be half of one.
            let ready = line.split_inclusive('\n').next().filter(|line| line.ends_with('\n'));
            let ready = ready.map(|line| serde_json::from_str::<Ready>(line).context(line.to_owned()));
            ready.or_else(|| process.check_alive().err().map(Err))
        });
        let ready = ready.await.and_then(|ready| ready).context("no engine")?;
        anyhow::ensure!(ready.listen == *address, "{name} listens on {}, not on {address}", ready.listen);
        Ok(())
    }
}

fn spawn(
    name: &str,
    dir: &Path,
    flags: &[String],
    address: SocketAddr,
    events: SocketAddr,
    replay: SocketAddr,
) -> Result<Process> {
    let mut command = Command::new(workspace::program("warmroute-simengine")?);
    command.args(["--listen", &address.to_string()]);
    command.args(["--events", &format!("tcp://{events}"), "--replay", &format!("tcp://{replay}")]);
    command.args(flags);
    Process::spawn(name, &mut command, &out(dir, name), &dir.join(format!("{name}.log")))
}

fn out(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.out"))
}
