//! Building the plugin and the programs.

use anyhow::Result;

use crate::{run, tools};

/// The plugin and the programs.
pub(crate) fn all() -> Result<()> {
    plugin()?;
    programs()
}

fn plugin() -> Result<()> {
    tools::add_wasm_targets()?;
    let target = ["--target", "wasm32-wasip1", "--profile", "wasm"];
    run::to_end(run::cargo(&["build", "--locked", "--package", "warmroute", "--lib"])?.args(target))
}

fn programs() -> Result<()> {
    let packages = ["--package", "warmroute-collector", "--package", "warmroute-simengine"];
    run::to_end(run::cargo(&["build", "--locked", "--bins"])?.args(packages))
}
