//! `cargo xtask test --engine ENGINE`: an engine that is not ours, and whether it reports what we predict.
//!
//! Two replicas, the collector and Envoy; 200 requests, one at a time. The requests are a mix that goes on as the engine
//! answers: conversations with shared prefixes, prompts that end anywhere in a block, prompts asked again, adapters and
//! salts where the engine has them, and so many of them that the small caches evict.

mod mix;
mod report;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde_json::json;
use warmroute_e2e::exactness::Examiner;
use warmroute_e2e::real::{Kind, MODEL, RealEngine};
use warmroute_e2e::workspace::ScratchDir;
use warmroute_e2e::{Stack, envoy_binary};

use self::mix::Mix;
use self::report::Report;
use crate::build;

const REPLICAS: usize = 2;
const REQUESTS: usize = 200;
/// The mix is the same each time.
const SEED: u64 = 4;

/// The engines that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// `dynamo.mocker` 1.6.1 behind its own frontend (0.6 GB are installed)
    Mocker,
    /// vLLM 0.32.0 on the CPU (6 GB are installed, and each replica takes 1.5 GB of memory and minutes to start)
    Vllm,
}

/// Builds, installs, starts, asks, reports. Nothing is left running, however it ends.
pub(crate) fn run(engine: Engine) -> Result<()> {
    build::all()?;
    eprintln!("Envoy: {}", envoy_binary::path()?.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            done = examine(engine) => done,
            // What was started ends with the future that holds it.
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

async fn examine(engine: Engine) -> Result<()> {
    let kind = match engine {
        Engine::Mocker => Kind::Mocker,
        Engine::Vllm => Kind::Vllm,
    };
    let traits = kind.traits();
    let installed = kind.install().context("cannot install the engine")?;
    let dir = ScratchDir::new("real-engines")?;
    let mut engines = Vec::new();
    for number in 0..REPLICAS {
        let mut engine = installed.start(dir.path(), &format!("engine-{number}"))?;
        eprintln!("waiting for {} {number}", traits.name);
        engine.wait_until_ready().await?;
        engines.push(engine);
    }
    let stack = Stack::builder("real-engines-stack")
        .served_by(engines.iter().map(|engine| engine.endpoints().clone()))
        .block_size(traits.block_size)
        // What is compared is what the index says.
        .filter(json!({ "recent_routes_ms": 0 }))
        .edit_collector(|config| {
            *config.pointer_mut("/pools/0/base_models").context("no pool")? = json!([MODEL]);
            Ok(())
        })
        .start()
        .await?;

    let examiner = Examiner::new(stack.url(), &stack.collector, MODEL, traits.block_size)?;
    let mut mix = Mix::new(traits, SEED);
    let mut report = Report::new(traits, REPLICAS);
    for number in 0..REQUESTS {
        let drawn = mix.draw();
        let asked = examiner.ask(&drawn.request).await;
        let verdict =
            asked.with_context(|| format!("request {number}, {}: {:?}", drawn.sort, drawn.request))?;
        mix.answered(&drawn, &verdict.answer);
        report.add(number, &drawn, &verdict);
    }
    report.collected(&stack.collector.metrics().await?);
    println!("{report}");
    let differences = report.differences();
    stack.stop().await?;
    stop(engines).await?;
    dir.remove()?;
    ensure!(differences == 0, "{differences} of {REQUESTS} requests were reported otherwise than predicted");
    Ok(())
}

async fn stop(engines: Vec<RealEngine>) -> Result<()> {
    for engine in engines {
        engine.stop().await?;
    }
    Ok(())
}
