//! Hosting the warmroute component from Rust.
//!
//! [`Warmroute`] is all that a host needs: the component compiled once, one instance of it, and the calls of its
//! contract as typed functions. `main.rs` uses it from start to end.

use std::path::{Path, PathBuf};

use wasmtime::component::{Component, Linker};
use wasmtime::error::Context as _;
use wasmtime::{Engine, Result, Store};

/// What `wit/` declares, as Rust types.
#[allow(missing_docs, clippy::all, reason = "generated from wit/, where the documentation is")]
pub mod contract {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "warmroute",
        additional_derives: [PartialEq, Clone],
    });
}

pub use contract::exports::warmroute::routing::{events, hashing, prefix_index, router, types};

/// One instance of the component. Calls go through the typed functions of its world, each with the store:
/// `warmroute.world.warmroute_routing_hashing().call_hash_tokens(&mut warmroute.store, ...)`.
pub struct Warmroute {
    /// Where the instance lives.
    pub store: Store<()>,
    /// Its functions.
    pub world: contract::Warmroute,
}

// === impl Warmroute ===

impl Warmroute {
    /// Compiles the component and makes an instance of it. It needs nothing of the host: the linker is empty.
    ///
    /// # Errors
    ///
    /// The file is not there, or no component of this contract.
    pub fn open(component: &Path) -> Result<Self> {
        let engine = Engine::default();
        let component = Component::from_file(&engine, component).with_context(|| {
            format!("cannot load {}: has `cargo xtask component` been run?", component.display())
        })?;
        let mut store = Store::new(&engine, ());
        let world = contract::Warmroute::instantiate(&mut store, &component, &Linker::new(&engine))?;
        Ok(Self { store, world })
    }

    /// The component as `cargo xtask component` leaves it: in the target directory that this program was built into.
    ///
    /// # Errors
    ///
    /// The running program does not lie in a target directory.
    pub fn built_component() -> Result<PathBuf> {
        let program = std::env::current_exe().context("cannot tell the running program's path")?;
        let target = program.ancestors().find(|directory| directory.join("component").is_dir());
        let target = target.context("there is no component: run `cargo xtask component`")?;
        Ok(target.join("component/warmroute.component.wasm"))
    }
}
