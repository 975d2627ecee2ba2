//! What is built for the benchmark alone.

use std::path::PathBuf;

use anyhow::{Context, Result};
use warmroute_e2e::workspace;

use super::peers;
use crate::{build, run};

/// Where it is.
#[derive(Debug)]
pub(super) struct Built {
    /// The filter that does nothing.
    pub(super) noop: PathBuf,
    /// The plugin that tells how long each phase of a request takes.
    pub(super) timed: PathBuf,
    /// The external processor that only answers.
    pub(super) ext_proc_floor: PathBuf,
    /// The Python that has the others' routers, or why there is none.
    pub(super) peers: std::result::Result<PathBuf, String>,
}

/// Builds ours as it is shipped, and the others.
pub(super) fn all() -> Result<Built> {
    build::all()?;
    let (mut built, target) = (named()?, target()?);
    let package = |name: &str, more: &[&str]| -> Result<()> {
        let manifest = workspace::root().join("bench").join(name).join("Cargo.toml");
        let mut cargo = run::cargo(&["build", "--locked", "--release", "--manifest-path"])?;
        run::to_end(cargo.arg(manifest).args(more).env("CARGO_TARGET_DIR", &target))
            .with_context(|| format!("cannot build bench/{name}"))
    };
    package("wasm-noop", &["--target", "wasm32-unknown-unknown"])?;
    package("ext-proc-floor", &[])?;
    built.peers = peers::install().map_err(|error| format!("{error:#}"));
    Ok(built)
}

/// Builds the plugin as it is shipped, and the one that is timed.
pub(super) fn ours() -> Result<Built> {
    build::all()?;
    build::plugin_with("phase-times", &target()?)?;
    named()
}

fn target() -> Result<PathBuf> {
    Ok(workspace::target_dir()?.join("bench"))
}

fn named() -> Result<Built> {
    let target = target()?;
    Ok(Built {
        noop: target.join("wasm32-unknown-unknown/release/warmroute_wasm_noop.wasm"),
        timed: target.join(workspace::PLUGIN),
        ext_proc_floor: target.join("release/warmroute-ext-proc-floor"),
        peers: Err("not asked for".to_owned()),
    })
}
