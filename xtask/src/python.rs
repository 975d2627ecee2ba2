//! The Python package: its wheel, and its tests.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use warmroute_e2e::venv::Venv;
use warmroute_e2e::workspace;

use crate::{build, component, run};

/// What the tests run with. Ray is there for its classes: `KVAwareRouter` is tested against them, not against mocks.
const NEEDED: [&str; 4] = ["pytest==9.2.0", "pyzmq==27.3.0", "ray[serve]==2.60.0", "wasmtime==50.0.1"];

/// Builds the wheel. Returns where it is.
pub(crate) fn wheel() -> Result<PathBuf> {
    let component = component::build()?;
    let package = workspace::root().join("python");
    // Not under version control: the wheel takes up what lies in the package.
    let inside = package.join("warmroute/warmroute.component.wasm");
    fs::copy(component, &inside).with_context(|| format!("cannot write {}", inside.display()))?;

    let wheels = workspace::target_dir()?.join("python/wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels).with_context(|| format!("cannot empty {}", wheels.display()))?;
    }
    let mut uv = Command::new(venv()?.path().join("bin/uv"));
    run::to_end(uv.args(["build", "--quiet", "--wheel", "--out-dir"]).arg(&wheels).arg(&package))?;
    let mut built = fs::read_dir(&wheels)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    built.find(is_wheel).context("there is no wheel")
}

/// Runs the package's tests against its wheel, installed.
pub(crate) fn test() -> Result<()> {
    run::to_end(&mut pytest("python/tests")?)
}

/// Runs the example application in a real Ray, on this machine.
pub(crate) fn test_with_ray() -> Result<()> {
    build::simengine()?;
    let mut tests = pytest("examples/ray-serve")?;
    tests.env("WARMROUTE_SIMENGINE", workspace::program("warmroute-simengine")?);
    tests.env("PYTHONPATH", workspace::root().join("examples/ray-serve"));
    // Ray makes sockets there, whose paths must be short.
    let scratch = env::temp_dir().join(format!("warmroute-ray-{}", std::process::id()));
    tests.env("WARMROUTE_RAY_DIR", &scratch);
    tests.envs([
        ("RAY_AUTH_MODE", "disabled"),
        ("RAY_USAGE_STATS_ENABLED", "0"),
        // Ray's defaults are for machines that do little else: its workers give way to everything, and it waits 30 s for itself.
        ("RAY_worker_niceness", "0"),
        ("RAY_raylet_start_wait_time_s", "120"),
    ]);
    run::to_end(tests.args(["-x", "-W", "ignore"]))
        .with_context(|| format!("Ray's logs are left in {}", scratch.display()))?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// Puts the package into an environment, as its wheel.
pub(crate) fn install(venv: &Venv) -> Result<()> {
    let wheel = wheel()?;
    venv.install(["--reinstall", "--no-deps", &wheel.to_string_lossy()])
}

/// pytest over a directory of the repository, with the package installed.
fn pytest(directory: &str) -> Result<Command> {
    let venv = venv()?;
    install(&venv)?;
    // From a directory that has no package of this name: the one that is installed is tested.
    let mut tests = Command::new(venv.python());
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(workspace::root().join(directory));
    tests.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(venv.path());
    Ok(tests)
}

fn venv() -> Result<Venv> {
    Venv::get("python/venv", |venv| venv.install(NEEDED))
}
