//! The rules of routing, compared in simulated time by `warmroute-replay`, which is built with optimisation first.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::run;

#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Passed on: `cargo xtask bench quality --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    arguments: Vec<String>,
}

/// Builds and runs the comparison.
pub(crate) fn run(options: &Options) -> Result<()> {
    let build = ["build", "--locked", "--release", "--package", "warmroute-replay"];
    run::to_end(&mut run::cargo(&build)?)?;
    let program: PathBuf = warmroute_e2e::workspace::target_dir()?.join("release").join("warmroute-replay");
    // In the directory of whoever typed the command: the files that it names are there.
    let mut replay = std::process::Command::new(&program);
    let here = std::env::current_dir().context("there is no current directory")?;
    run::to_end(replay.args(&options.arguments).current_dir(here))
}
