//! Engines that are not ours, from PyPI, with a tiny model: to see that what they report is what we predict.
//!
//! Their environments are made once, in the target directory, at pinned versions.

mod mocker;
mod vllm;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::engine::Endpoints;
use crate::process::Process;
use crate::venv::{self, Venv};
use crate::{ports, wait, workspace};

/// The name under which every engine serves its tiny model.
pub const MODEL: &str = "tiny";

/// An adapter of it, where the engine has adapters.
pub const ADAPTER: &str = "tiny-adapter";

/// Python, torch and an engine core, each started by the one before, on a machine that others use too.
const START_DEADLINE: Duration = Duration::from_secs(300);

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `dynamo.mocker` of NVIDIA Dynamo behind its own frontend: an engine simulated by others.
    Mocker,
    /// vLLM on the CPU.
    Vllm,
}

/// What an engine is, as far as requests to it have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Name and version.
    pub name: &'static str,
    /// Tokens in a block.
    pub block_size: u32,
    /// Blocks in the cache: few, so that some are evicted.
    pub num_blocks: u32,
    /// Whether it has adapters and salts.
    pub namespaces: bool,
}

/// A running engine. Dropping it kills it.
#[derive(Debug)]
pub struct RealEngine {
    endpoints: Endpoints,
    processes: Vec<Process>,
}

/// An engine's environment, and the model.
#[derive(Debug)]
pub struct Installed {
    kind: Kind,
    venv: Venv,
    model: PathBuf,
    adapter: PathBuf,
}

// === impl Kind ===

impl Kind {
    /// What it is.
    #[must_use]
    pub fn traits(self) -> Traits {
        match self {
            Self::Mocker => mocker::TRAITS,
            Self::Vllm => vllm::TRAITS,
        }
    }

    /// Makes its environment, unless it is there, and its model.
    ///
    /// # Errors
    /// When something cannot be fetched or written.
    pub fn install(self) -> Result<Installed> {
        let venv = match self {
            Self::Mocker => mocker::venv()?,
            Self::Vllm => vllm::venv()?,
        };
        let dir = venv.path().join("model");
        let (model, adapter) = (dir.join("tiny"), dir.join("adapter"));
        let mut make = Command::new(venv.python());
        make.arg(workspace::root().join("tests/engines/tiny_model.py")).arg(&model);
        if self.traits().namespaces {
            make.arg(&adapter);
        }
        venv::run(&mut make)?;
        Ok(Installed { kind: self, venv, model, adapter })
    }
}

// === impl Installed ===

impl Installed {
    /// Starts an engine called `name`; its logs lie in `dir`. It need not be ready.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn start(&self, dir: &Path, name: &str) -> Result<RealEngine> {
        let endpoints =
            Endpoints { address: ports::free()?, events: tcp(ports::free()?), replay: tcp(ports::free()?) };
        let commands = match self.kind {
            Kind::Mocker => mocker::commands(self, &endpoints, &dir.join(format!("{name}-discovery")))?,
            Kind::Vllm => vec![vllm::command(self, &endpoints)?],
        };
        let mut processes = Vec::new();
        for (number, mut command) in commands.into_iter().enumerate() {
            let name = format!("{name}-{number}");
            let (out, log) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.log")));
            // Nothing is fetched or told: the model is here.
            command.envs([("HF_HUB_OFFLINE", "1"), ("TRANSFORMERS_OFFLINE", "1")]).current_dir(dir);
            processes.push(Process::spawn(&name, &mut command, &out, &log)?);
        }
        Ok(RealEngine { endpoints, processes })
    }
}

// === impl RealEngine ===

impl RealEngine {
    /// Where it serves and speaks.
    #[must_use]
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Waits until it serves its model.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let url = format!("http://{}/v1/models", self.endpoints.address);
        let processes = &mut self.processes;
        wait::until_ok(START_DEADLINE, "the engine to serve", async || {
            if let Some(ended) = processes.iter_mut().find_map(|process| process.check_alive().err()) {
                return Ok(Err(ended));
            }
            let models = reqwest::get(&url).await?.error_for_status()?.text().await?;
            anyhow::ensure!(models.contains(&format!("\"{MODEL}\"")), "so far {models}");
            Ok(Ok(()))
        })
        .await?
    }

    /// Ends it as an orchestrator would.
    ///
    /// # Errors
    /// When it had died, or had to be killed.
    pub async fn stop(mut self) -> Result<()> {
        for process in self.processes.iter_mut().rev() {
            process.check_alive()?;
            process.stop().await?;
        }
        Ok(())
    }
}

fn tcp(address: SocketAddr) -> String {
    format!("tcp://{address}")
}

/// The port of an endpoint of ours.
fn port(endpoint: &str) -> Result<&str> {
    Ok(endpoint.rsplit_once(':').context("an endpoint without a port")?.1)
}
