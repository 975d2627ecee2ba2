//! Python environments in the target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// It resolves and unpacks some hundred packages in seconds, and lets a pin of a package's be overridden.
const UV: &str = "uv==0.13.9";

/// A Python environment with everything installed.
#[derive(Debug)]
pub struct Venv(PathBuf);

// === impl Venv ===

impl Venv {
    /// The environment at `path` within the target directory; where it is not there, it is made and `install` fills it. A
    /// half-made one is thrown away.
    ///
    /// # Errors
    /// Python is not there, or something cannot be installed.
    pub fn get(path: &str, install: impl FnOnce(&Self) -> Result<()>) -> Result<Self> {
        let venv = Self(workspace::target_dir()?.join(path));
        let complete = venv.0.join("complete");
        if complete.is_file() {
            return Ok(venv);
        }
        if venv.0.exists() {
            fs::remove_dir_all(&venv.0).with_context(|| format!("cannot remove {}", venv.0.display()))?;
        }
        eprintln!("installing {}", venv.0.display());
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv.0))?;
        run(Command::new(venv.python()).args(["-m", "pip", "install", "--quiet", UV]))?;
        install(&venv)?;
        fs::write(&complete, "")?;
        Ok(venv)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Its interpreter.
    #[must_use]
    pub fn python(&self) -> PathBuf {
        self.0.join("bin/python")
    }

    /// `uv pip install` with these arguments.
    ///
    /// # Errors
    /// Something cannot be installed.
    pub fn install<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let mut uv = Command::new(self.0.join("bin/uv"));
        uv.args(["pip", "install", "--quiet", "--python"]).arg(self.python());
        run(uv.args(arguments))
    }

    /// Where its packages lie.
    ///
    /// # Errors
    /// The environment has none.
    pub fn packages(&self) -> Result<PathBuf> {
        let lib = fs::read_dir(self.0.join("lib"))?
            .filter_map(|entry| Some(entry.ok()?.path().join("site-packages")));
        lib.into_iter().find(|path| path.is_dir()).context("the environment has no packages")
    }
}

/// Runs a command to its end; what it says is shown only where it fails.
///
/// # Errors
/// It cannot be run, or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    let run = command.output().with_context(|| format!("cannot run {}", program.display()))?;
    if !run.status.success() {
        let said = String::from_utf8_lossy(&run.stderr);
        bail!("{} ended with {}:\n{}", program.display(), run.status, said.trim_end());
    }
    Ok(())
}
