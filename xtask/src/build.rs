//! Building the plugin and the programs.

use std::fs;

use anyhow::{Context, Result};
use warmroute_e2e::workspace;

use crate::{run, tools};

/// The plugin and the programs.
pub(crate) fn all() -> Result<()> {
    plugin()?;
    programs()
}

fn plugin() -> Result<()> {
    plugin_with(&[])
}

/// The plugin that panics on demand, beside the real one. Build it first: both come out under one name.
pub(crate) fn faulty_plugin() -> Result<()> {
    plugin_with(&["--features", "fault-injection"])?;
    let built = workspace::target_dir()?.join("wasm32-wasip1/wasm/warmroute.wasm");
    fs::copy(&built, workspace::faulty_plugin_path()?).context("cannot copy the plugin")?;
    Ok(())
}

fn plugin_with(features: &[&str]) -> Result<()> {
    tools::add_wasm_targets()?;
    let target = ["--target", "wasm32-wasip1", "--profile", "wasm"];
    let mut build = run::cargo(&["build", "--locked", "--package", "warmroute", "--lib"])?;
    run::to_end(build.args(target).args(features))
}

fn programs() -> Result<()> {
    let packages = ["--package", "warmroute-collector", "--package", "warmroute-simengine"];
    run::to_end(run::cargo(&["build", "--locked", "--bins"])?.args(packages))
}
