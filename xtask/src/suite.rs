//! Every check and test, in the order in which they are quickest to fail.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use warmroute_e2e::{rounds, workspace};

use crate::engines::{self, Engine};
use crate::{build, component, python, run, templates, tools};

#[derive(Args)]
pub(crate) struct Options {
    /// Run these steps alone; may be given more than once
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
    /// Instead, ask an engine that is not ours 200 requests, and compare what it reports with what was predicted
    #[arg(long, conflicts_with = "only")]
    engine: Option<Engine>,
    /// Instead, kill and start engines and collector N times under load, and see that all is exact again each time
    #[arg(long, value_name = "N", conflicts_with_all = ["only", "engine"])]
    rounds: Option<usize>,
    /// Instead, hold the tokens of real tokenizers and chat templates against transformers. Fetches some 300 MB
    #[arg(long, conflicts_with_all = ["only", "engine", "rounds"])]
    templates: bool,
    /// Instead, run the component in the Rust host of `examples/`, against the core itself and a hundred thousand random
    /// calls. Compiles wasmtime
    #[arg(long, conflicts_with_all = ["only", "engine", "rounds", "templates"])]
    host: bool,
    /// Instead, run the example application in a real Ray: four replicas of the simulated engine, killed, scaled and asked
    /// nonsense. Wants a machine that is not busy
    #[arg(long, conflicts_with_all = ["only", "engine", "rounds", "templates", "host"])]
    ray: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Formatting
    Fmt,
    /// Lints of everything, natively
    Clippy,
    /// Lints of what becomes WebAssembly
    ClippyWasm,
    /// Licences, sources and duplicates of dependencies
    Deny,
    /// The documentation builds without warnings
    Doc,
    /// The plugin and the programs
    Build,
    /// The WebAssembly component, held against its contract
    Component,
    /// Unit, property and documentation tests
    Unit,
    /// The Python package, as a wheel, with Ray's own classes
    Python,
    /// The stack in the real Envoy
    E2e,
}

/// Runs the steps chosen, or all.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(engine) = options.engine {
        return engines::run(engine);
    }
    if options.host {
        return component::test_in_host();
    }
    if options.ray {
        return python::test_with_ray();
    }
    if let Some(rounds) = options.rounds {
        return kill_for(rounds);
    }
    if options.templates {
        return templates::run();
    }
    let chosen =
        Step::value_variants().iter().filter(|step| options.only.is_empty() || options.only.contains(step));
    let begun = Instant::now();
    for step in chosen {
        let name = step.name();
        println!("\n=== {name} ===");
        let begun = Instant::now();
        step.run().with_context(|| format!("the step {name} failed"))?;
        println!("--- {name}: ok in {:.1} s", begun.elapsed().as_secs_f32());
    }
    println!("\nall is well after {:.0} s", begun.elapsed().as_secs_f32());
    Ok(())
}

fn kill_for(rounds: usize) -> Result<()> {
    build::all()?;
    let seed = u64::from(std::process::id());
    eprintln!("seed: {seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("{}", runtime.block_on(rounds::run("rounds", rounds, seed))?);
    Ok(())
}

// === impl Step ===

impl Step {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn run(self) -> Result<()> {
        match self {
            Self::Fmt => cargo(&["fmt", "--all", "--check"]),
            Self::Clippy => {
                cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-Dwarnings"])
            }
            Self::ClippyWasm => {
                tools::add_wasm_targets()?;
                let packages = ["--package", "warmroute", "--package", "warmroute-routing"];
                let mut clippy = run::cargo(&["clippy", "--locked", "--target", "wasm32-wasip1"])?;
                run::to_end(clippy.args(packages).args(["--", "-Dwarnings"]))
            }
            Self::Deny => {
                let mut deny = Command::new(tools::cargo_deny()?);
                deny.args(["--locked", "check", "licenses", "bans", "sources"]);
                run::to_end(deny.current_dir(workspace::root()))
            }
            Self::Doc => {
                let mut doc = run::cargo(&["doc", "--locked", "--no-deps", "--workspace"])?;
                run::to_end(doc.env("RUSTDOCFLAGS", "-Dwarnings"))
            }
            Self::Build => build::all(),
            Self::Component => component::build().map(drop),
            Self::Unit => cargo(&["test", "--locked", "--workspace", "--exclude", "warmroute-e2e"]),
            Self::Python => python::test(),
            Self::E2e => {
                build::all()?;
                build::faulty_plugin()?;
                // Each scenario starts some six processes; two cores bear two scenarios.
                cargo(&["test", "--locked", "--package", "warmroute-e2e", "--", "--test-threads=2"])
            }
        }
    }
}

fn cargo(arguments: &[&str]) -> Result<()> {
    run::to_end(&mut run::cargo(arguments)?)
}
