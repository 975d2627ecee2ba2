//! Running other programs.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, bail};
use warmroute_e2e::workspace;

/// Cargo, in the repository's root and with the target directory that this program was built into.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo.args(arguments).current_dir(workspace::root()).env("CARGO_TARGET_DIR", workspace::target_dir()?);
    Ok(cargo)
}

/// Runs `command` to its end, its output going where ours goes.
pub(crate) fn to_end(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// What `command` prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", line(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", line(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} printed no text", line(command)))
}

/// As a person would type it, without the way to the program.
fn line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
