//! The workspace `compare`: warmroute beside its peers, in one process.

use std::process::Command;

use anyhow::Result;
use warmroute_e2e::workspace;

use crate::run;

/// The differential test.
pub(crate) fn differential() -> Result<()> {
    // Optimised, as the benchmark is: the peer is compiled once for both.
    run::to_end(&mut cargo(&["test", "--locked", "--release"])?)
}

/// Cargo in that workspace, whose dependencies are compiled into a folder of their own.
fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut cargo = run::cargo(arguments)?;
    let target = workspace::target_dir()?.join("compare");
    cargo.current_dir(workspace::root().join("compare")).env("CARGO_TARGET_DIR", target);
    Ok(cargo)
}
