//! The core as a WebAssembly component: built without WASI, encoded here, held against its contract.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use warmroute_e2e::workspace;
use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{Resolve, WorldId};

use crate::{run, tools};

/// Builds the component and checks it. Returns where it is.
pub(crate) fn build() -> Result<PathBuf> {
    tools::add_wasm_targets()?;
    let mut build = run::cargo(&["build", "--locked", "--package", "warmroute-component", "--lib"])?;
    run::to_end(build.args(["--target", "wasm32-unknown-unknown", "--profile", "wasm"]))?;
    let target = workspace::target_dir()?;
    let module = target.join("wasm32-unknown-unknown/wasm/warmroute_component.wasm");
    let module = fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;

    let component = ComponentEncoder::default().validate(true).module(&module)?.encode()?;
    check(&component).context("the component is not what wit/ says")?;

    let directory = target.join("component");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let path = directory.join("warmroute.component.wasm");
    fs::write(&path, component).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Runs the tests of the Rust host.
pub(crate) fn test_in_host() -> Result<()> {
    build()?;
    let mut test = run::cargo(&["test", "--locked"])?;
    let target = workspace::target_dir()?.join("host");
    let example = workspace::root().join("examples/rust-host");
    run::to_end(test.current_dir(example).env("CARGO_TARGET_DIR", target))
}

/// The component exports what `wit/` declares and nothing else, and imports nothing.
fn check(component: &[u8]) -> Result<()> {
    let mut contract = Resolve::default();
    let (package, _) = contract.push_dir(workspace::root().join("wit"))?;
    let world = contract.select_world(&[package], Some("warmroute"))?;
    wit_component::targets(&contract, world, component, false)?;

    let DecodedWasm::Component(decoded, own_world) = wit_component::decode(component)? else {
        bail!("it is a package of interfaces");
    };
    let (declared, exported) = (exports(&contract, world), exports(&decoded, own_world));
    if declared != exported {
        bail!("it exports {exported:?}, the contract has {declared:?}");
    }
    let imports = decoded.worlds.get(own_world).map_or(0, |world| world.imports.len());
    if imports > 0 {
        bail!("it has {imports} imports");
    }
    Ok(())
}

fn exports(resolve: &Resolve, world: WorldId) -> BTreeSet<String> {
    let exports = resolve.worlds.get(world).into_iter().flat_map(|world| world.exports.keys());
    exports.map(|key| resolve.name_world_key(key)).collect()
}
