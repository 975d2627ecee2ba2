//! The routers of others, from PyPI, installed by this command alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use warmroute_e2e::venv::Venv;
use warmroute_e2e::{Client, Engine, ports, tokens, wait};
use warmroute_simengine::Config;
use warmroute_simengine::events::{self, EventSockets, Publisher};

use super::load::Target;
use super::place::{Router, Running, Surroundings};
use super::prompts::{self, BLOCK_SIZE, Carrier, Dialect, MODEL, PROMPTS, Prompt};

/// What is installed. The figures in the documentation are of these versions.
pub(super) const PACKAGES: [&str; 2] = ["vllm-router==0.1.17", "sglang-router==0.3.2"];

/// How long a router may take to subscribe to an engine.
const HEARD_DEADLINE: Duration = Duration::from_secs(30);

/// Installs them into an environment of their own, once for each set of versions; where its Python is.
pub(super) fn install() -> Result<PathBuf> {
    let name = PACKAGES.join("-").replace("==", "-");
    Ok(Venv::get(&format!("bench/{name}"), |venv| venv.install(PACKAGES))?.python())
}

/// vLLM's router, which remembers the text of the prompts that it has sent.
pub(super) fn vllm_cache_aware(around: &Surroundings<'_>) -> Result<Router> {
    router("vllm-router-cache-aware", "vllm_router.launch_router", around, "cache_aware", "warning")
}

/// vLLM's router, which follows the engines' events. It wants a stream of its own for each worker: `engines` tell who holds
/// the prompts, one for each number of a prompt, and `silent` is that of each worker that has nothing.
pub(super) fn vllm_kv_aware(
    around: &Surroundings<'_>,
    engines: &[Engine],
    silent: &[(Publisher, EventSockets)],
) -> Result<Router> {
    let mut router =
        router("vllm-router-kv-aware", "vllm_router.launch_router", around, "kv_aware", "warning")?;
    let mut silent = silent.iter();
    for (number, worker) in around.workers.iter().enumerate() {
        let holder = (0..PROMPTS).position(|i| prompts::holder(i) == number);
        let events = match holder.and_then(|i| engines.get(i)) {
            Some(engine) => engine.events(),
            None => silent.next().context("too few silent streams")?.1.events.clone(),
        };
        router.command.args(["--kv-event-source", &format!("http://{worker}={events}")]);
    }
    let block_size = BLOCK_SIZE.to_string();
    router.command.args(["--kv-event-model", MODEL, "--kv-event-block-size", &block_size]);
    Ok(router)
}

/// SGLang's router.
pub(super) fn sglang(around: &Surroundings<'_>) -> Result<Router> {
    router("sglang-router", "sglang_router.launch_router", around, "cache_aware", "warn")
}

fn router(
    name: &'static str,
    module: &str,
    around: &Surroundings<'_>,
    policy: &str,
    quiet: &str,
) -> Result<Router> {
    let python = around.built.peers.as_ref().map_err(|reason| anyhow::anyhow!("{reason}"))?;
    let (address, metrics) = (ports::free()?, ports::free()?);
    let mut command = Command::new(python);
    // A line in the log for each request is their default; it would be measured with the request.
    command.args(["-m", module, "--policy", policy, "--log-level", quiet]);
    command.args(["--host", &address.ip().to_string(), "--port", &address.port().to_string()]);
    command.args(["--prometheus-port", &metrics.port().to_string(), "--worker-urls"]);
    command.args(around.workers.iter().map(|worker| format!("http://{worker}")));
    Ok(Router { name, command, address })
}

/// Engines whose events tell who holds the prompts: one for each number of a prompt.
pub(super) async fn engines(dir: &Path) -> Result<Vec<Engine>> {
    let flags = ["--block-size", &BLOCK_SIZE.to_string(), "--model", MODEL, "--num-blocks", "65536"];
    let quick = ["--base-ms", "0", "--prefill-us-per-token", "0"];
    let flags: Vec<String> = flags.into_iter().chain(quick).map(str::to_owned).collect();
    let mut engines = Vec::new();
    for number in 0..PROMPTS {
        engines.push(Engine::start(dir, &format!("engine-{number}"), &flags).await?);
    }
    Ok(engines)
}

/// So many streams of events on which nothing is ever said.
pub(super) async fn silent_streams(count: usize) -> Result<Vec<(Publisher, EventSockets)>> {
    let config: Config = clap::Parser::try_parse_from(["silent", "--events", "tcp://127.0.0.1:0"])?;
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(events::start(&config).await?.context("an event endpoint was asked for")?);
    }
    Ok(streams)
}

/// Has each engine compute its prompts, once the router is sure to hear of it.
pub(super) async fn fill(router: &Running, engines: &[Engine], lengths: &[usize]) -> Result<()> {
    for (number, engine) in engines.iter().enumerate() {
        wait_until_heard(router, engine, number).await?;
        let client = Client::http1(engine.url())?;
        for length in lengths {
            let prompts = prompts::warm(*length);
            let prompt = prompts.get(number).context("no such prompt")?;
            client.complete(&prompt.tokens, 1).await.context("an engine failed")?;
        }
    }
    Ok(())
}

/// What an engine publishes before the router has subscribed is lost. So it computes one prompt after another until the
/// router sends the one before where it is cached.
async fn wait_until_heard(router: &Running, engine: &Engine, number: usize) -> Result<()> {
    let holder = Some(prompts::holder(number));
    let prompt = |attempt: u64| Prompt { tokens: tokens((1 << 50) + attempt, 256), holder };
    let client = Client::http1(engine.url())?;
    let mut attempt = 0;
    wait::until_ok(HEARD_DEADLINE, "the router to hear an engine", async || {
        attempt += 1;
        client.complete(&prompt(attempt).tokens, 1).await?;
        let request = prompt(attempt - 1).request(Dialect::Completions, Carrier::Body);
        let target = Target { address: router.address, requests: Arc::new(vec![request]) };
        ensure!(target.once(0).await?, "another worker served");
        Ok(())
    })
    .await
}
