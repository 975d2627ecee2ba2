//! Where things are: the repository, what Cargo built, and what the harness writes.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::mem;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The plugin, within a target directory.
pub const PLUGIN: &str = "wasm32-wasip1/wasm/warmroute.wasm";

/// A directory for the logs and configurations of one run. It stays, and says so, unless it is removed: whoever looks
/// for the reason of a failure finds it there.
#[derive(Debug)]
pub struct ScratchDir(PathBuf);

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_path_buf()
}

/// Cargo's target directory: the one that the running program was built into.
///
/// # Errors
/// When the running program does not lie in a target directory.
pub fn target_dir() -> Result<PathBuf> {
    let profile = profile_dir()?;
    Ok(profile.parent().context("the running program has no target directory")?.to_path_buf())
}

/// The path of one of this workspace's programs, built before the tests run.
///
/// It is looked for in `WARMROUTE_BIN_DIR`, else next to the running program.
///
/// # Errors
/// When it is not there.
pub fn program(name: &str) -> Result<PathBuf> {
    let dir = match env::var_os("WARMROUTE_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => profile_dir()?,
    };
    built(dir.join(name))
}

/// The plugin, as `cargo xtask build` makes it. `WARMROUTE_WASM` names another.
///
/// # Errors
/// When it is not there.
pub fn plugin() -> Result<PathBuf> {
    match env::var_os("WARMROUTE_WASM") {
        Some(path) => built(PathBuf::from(path)),
        None => built(target_dir()?.join(PLUGIN)),
    }
}

/// The plugin that panics on demand, built with the feature `fault-injection`.
///
/// # Errors
/// When it is not there.
pub fn faulty_plugin() -> Result<PathBuf> {
    built(faulty_target_dir()?.join(PLUGIN))
}

/// Cargo's target directory for the plugin that panics on demand: one of its own, so that it never lies where the real
/// one is looked for.
///
/// # Errors
/// When the running program does not lie in a target directory.
pub fn faulty_target_dir() -> Result<PathBuf> {
    Ok(target_dir()?.join("faulty"))
}

/// `target/debug`, be the running program a binary of it or a test in its `deps`.
fn profile_dir() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot tell the running program's path")?;
    let dir = program.parent().context("the running program has no directory")?;
    Ok(if dir.ends_with("deps") { dir.parent().unwrap_or(dir) } else { dir }.to_path_buf())
}

fn built(path: PathBuf) -> Result<PathBuf> {
    if !path.is_file() {
        bail!(
            "{} is missing: `cargo xtask build` makes it, `cargo xtask test` runs everything",
            path.display()
        );
    }
    Ok(path)
}

// === impl ScratchDir ===

impl ScratchDir {
    /// A new, empty one for a run of `name`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        let parent = target_dir()?.join("e2e");
        fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
        for n in 0..10_000 {
            let dir = parent.join(format!("{name}-{}-{n}", std::process::id()));
            match fs::create_dir(&dir) {
                Ok(()) => return Ok(Self(dir)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot make {}", dir.display())),
            }
        }
        bail!("{} is full of runs of {name}: remove it", parent.display())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it, as all went well.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(mut self) -> Result<()> {
        let dir = mem::take(&mut self.0);
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            eprintln!("logs are left in {}", self.0.display());
        }
    }
}
