//! Building the plugin and the programs.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use warmroute_e2e::workspace;

use crate::{run, tools};

/// The plugin and the programs.
pub(crate) fn all() -> Result<()> {
    plugin()?;
    programs()
}

fn plugin() -> Result<()> {
    run::to_end(&mut plugin_build()?)
}

/// The plugin that panics on demand, for the tests of what a dead VM costs.
pub(crate) fn faulty_plugin() -> Result<()> {
    plugin_with("fault-injection", &workspace::faulty_target_dir()?)
}

/// The plugin with a feature that the shipped one never has, in a target directory of its own.
pub(crate) fn plugin_with(feature: &str, target: &Path) -> Result<()> {
    let mut build = plugin_build()?;
    run::to_end(build.args(["--features", feature]).env("CARGO_TARGET_DIR", target))
}

fn plugin_build() -> Result<Command> {
    tools::add_wasm_targets()?;
    let mut build = run::cargo(&["build", "--locked", "--package", "warmroute", "--lib"])?;
    build.args(["--target", "wasm32-wasip1", "--profile", "wasm"]);
    Ok(build)
}

/// The simulated engine alone.
pub(crate) fn simengine() -> Result<()> {
    run::to_end(&mut run::cargo(&["build", "--locked", "--bins", "--package", "warmroute-simengine"])?)
}

fn programs() -> Result<()> {
    let packages = ["--package", "warmroute-collector", "--package", "warmroute-simengine"];
    run::to_end(run::cargo(&["build", "--locked", "--bins"])?.args(packages))
}
