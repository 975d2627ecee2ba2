//! What the repository needs beside the pinned toolchain, installed where it is missing.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use warmroute_e2e::workspace;

use crate::run;

const WASM_TARGETS: [&str; 2] = ["wasm32-wasip1", "wasm32-unknown-unknown"];

const CARGO_DENY: &str = "0.20.2";

/// Adds the toolchain's WebAssembly targets. Without rustup, whoever installed the toolchain sees to that.
pub(crate) fn add_wasm_targets() -> Result<()> {
    let mut list = Command::new("rustup");
    list.args(["target", "list", "--installed"]).current_dir(workspace::root());
    let Ok(installed) = run::output(&mut list) else {
        eprintln!("rustup does not answer; the targets {} are taken to be there", WASM_TARGETS.join(", "));
        return Ok(());
    };
    let missing = WASM_TARGETS.iter().filter(|target| !installed.lines().any(|line| line == **target));
    for target in missing {
        run::to_end(Command::new("rustup").args(["target", "add", target]).current_dir(workspace::root()))?;
    }
    Ok(())
}

/// cargo-deny: the one on the path, else our own, installed on first use.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    let on_path = PathBuf::from("cargo-deny");
    if run::output(Command::new(&on_path).arg("--version")).is_ok() {
        return Ok(on_path);
    }
    let tools = workspace::target_dir()?.join("tools");
    let own = tools.join("bin/cargo-deny");
    if !own.is_file() {
        let mut install =
            run::cargo(&["install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--root"])?;
        // Its own build directory: the target directory is for our code and its lints.
        run::to_end(install.arg(&tools).env("CARGO_TARGET_DIR", tools.join("build")))?;
    }
    Ok(own)
}
