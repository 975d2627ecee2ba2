//! What is started to be measured.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::TcpStream;
use warmroute_e2e::process::Process;
use warmroute_e2e::workspace::ScratchDir;
use warmroute_e2e::{Bootstrap, Client, Engine, Envoy, envoy, ports, wait};
use warmroute_simengine::events::{EventSockets, Publisher};

use super::build::Built;
use super::{envoys, peers};

const START_DEADLINE: Duration = Duration::from_secs(60);

/// What runs. Several subjects may run in one place, where only their requests differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    PlainEnvoy,
    NoopFilter,
    Warmroute,
    /// With the plugin that tells how long each phase of a request takes.
    TimedWarmroute,
    ExtProcFloor,
    VllmRouterCacheAware,
    VllmRouterKvAware,
    SglangRouter,
}

/// Something that requests can be sent through.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) address: SocketAddr,
    /// The processes on the path, without client and upstream.
    pub(super) pids: Vec<u32>,
    envoy: Option<Envoy>,
    processes: Vec<Process>,
    /// Engines that only tell what they have cached; no request goes to them.
    engines: Vec<Engine>,
    /// Streams on which nothing is said.
    silent: Vec<(Publisher, EventSockets)>,
    dir: ScratchDir,
}

/// What all places have in common.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) built: &'a Built,
    /// The upstream's endpoints.
    pub(super) workers: &'a [SocketAddr],
    /// The scripted collector.
    pub(super) feed: SocketAddr,
    /// The lengths of the prompts, in tokens.
    pub(super) lengths: &'a [usize],
}

/// A program that takes requests by itself.
pub(super) struct Router {
    pub(super) name: &'static str,
    pub(super) command: Command,
    pub(super) address: SocketAddr,
}

// === impl Place ===

impl Place {
    /// Whether it is told which worker has which prompt cached. The others keep to whom they chose first.
    pub(super) fn knows_holders(self) -> bool {
        matches!(self, Self::Warmroute | Self::TimedWarmroute | Self::VllmRouterKvAware)
    }

    /// Starts it and waits until it serves.
    pub(super) async fn start(self, around: &Surroundings<'_>) -> Result<Running> {
        let dir = ScratchDir::new("bench-overhead")?;
        match self {
            Self::PlainEnvoy => Running::of_envoy(dir, envoys::plain(around)?).await,
            Self::NoopFilter => Running::of_envoy(dir, envoys::noop(around)?).await,
            Self::Warmroute => Running::of_envoy(dir, envoys::warmroute(around)?).await,
            Self::TimedWarmroute => {
                let mut bootstrap = envoys::warmroute(around)?;
                bootstrap.set_plugin(&around.built.timed)?;
                Running::of_envoy(dir, bootstrap).await
            }
            Self::ExtProcFloor => {
                let address = ports::free()?;
                let destination = around.workers.first().context("no workers")?;
                let mut command = Command::new(&around.built.ext_proc_floor);
                command.args([address.to_string(), destination.to_string()]);
                let floor = spawn("ext-proc-floor", &mut command, dir.path())?;
                let listens = async || TcpStream::connect(address).await.context("it does not");
                wait::until_ok(START_DEADLINE, "the external processor to listen", listens).await?;
                let mut running = Running::of_envoy(dir, envoys::ext_proc(around, address)?).await?;
                running.pids.push(floor.id());
                running.processes.push(floor);
                Ok(running)
            }
            Self::VllmRouterCacheAware => Running::of_router(dir, peers::vllm_cache_aware(around)?).await,
            Self::VllmRouterKvAware => {
                let engines = peers::engines(dir.path()).await?;
                let silent = peers::silent_streams(around.workers.len()).await?;
                let router = peers::vllm_kv_aware(around, &engines, &silent)?;
                let mut running = Running::of_router(dir, router).await?;
                (running.engines, running.silent) = (engines, silent);
                peers::fill(&running, &running.engines, around.lengths).await?;
                Ok(running)
            }
            Self::SglangRouter => Running::of_router(dir, peers::sglang(around)?).await,
        }
    }
}

// === impl Running ===

impl Running {
    async fn of_envoy(dir: ScratchDir, mut bootstrap: Bootstrap) -> Result<Self> {
        let options = envoy::Options { concurrency: 1, flags: Vec::new(), reloadable: false };
        let mut envoy = Envoy::start(dir.path(), &mut bootstrap, options).await?;
        let address = envoy.url().trim_start_matches("http://").parse()?;
        let pids = vec![envoy.process_mut().id()];
        Ok(Self {
            address,
            pids,
            envoy: Some(envoy),
            processes: vec![],
            engines: vec![],
            silent: vec![],
            dir,
        })
    }

    async fn of_router(dir: ScratchDir, router: Router) -> Result<Self> {
        let Router { name, mut command, address } = router;
        let mut process = spawn(name, &mut command, dir.path())?;
        let client = Client::http1(format!("http://{address}"))?;
        let waited = wait::until_ok(START_DEADLINE, format!("{name} to be ready"), async || {
            if let Err(ended) = process.check_alive() {
                return Ok(Err(ended));
            }
            let response = client.get("/health").send().await?;
            ensure!(response.status().is_success(), "status {}", response.status());
            Ok(Ok(()))
        });
        waited.await??;
        let pids = vec![process.id()];
        Ok(Self {
            address,
            pids,
            envoy: None,
            processes: vec![process],
            engines: vec![],
            silent: vec![],
            dir,
        })
    }

    /// Its Envoy.
    pub(super) fn envoy(&self) -> Result<&Envoy> {
        self.envoy.as_ref().context("no Envoy")
    }

    /// Ends what was started.
    ///
    /// # Errors
    /// Something had died meanwhile.
    pub(super) async fn stop(self) -> Result<()> {
        if let Some(mut envoy) = self.envoy {
            envoy.process_mut().check_alive()?;
            envoy.stop().await?;
        }
        for mut process in self.processes {
            process.check_alive()?;
            process.kill_hard()?;
        }
        drop(self.engines);
        for (publisher, sockets) in self.silent {
            drop(publisher);
            sockets.stop().await;
        }
        self.dir.remove()
    }
}

fn spawn(name: &str, command: &mut Command, dir: &Path) -> Result<Process> {
    Process::spawn(name, command, &dir.join(format!("{name}.out")), &dir.join(format!("{name}.log")))
}
