//! Every command a person types: `cargo xtask --help`.

mod bench;
mod build;
mod compare;
mod component;
mod demo;
mod engines;
mod python;
mod run;
mod soak;
mod suite;
mod templates;
mod tools;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The commands of the warmroute repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the plugin (WebAssembly) and the programs
    Build,
    /// Build the WebAssembly component for hosts that are not Envoy, and print its path
    Component,
    /// Build the Python package's wheel, with the component in it, and print its path
    Wheel,
    /// Run every check and test, as CI does; stops at the first failure
    Test(suite::Options),
    /// Show what warmroute does: the same conversations without and with it
    Demo(demo::Options),
    /// Measure
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Hold the index and the adapters against a peer's: they differ where the documentation says so, and nowhere else
    Compare,
    /// Load it for long while parts are killed, frozen and configured anew; nothing may fail
    Soak(soak::Options),
    /// Print the path of the pinned Envoy, fetching it first where need be
    Envoy,
}

fn main() -> ExitCode {
    match dispatch(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: &Command) -> Result<()> {
    match command {
        Command::Build => build::all(),
        Command::Component => {
            println!("{}", component::build()?.display());
            Ok(())
        }
        Command::Wheel => {
            println!("{}", python::wheel()?.display());
            Ok(())
        }
        Command::Test(options) => suite::run(options),
        Command::Demo(options) => demo::run(options),
        Command::Bench(bench) => bench::run(bench),
        Command::Compare => compare::differential(),
        Command::Soak(options) => soak::run(options),
        Command::Envoy => {
            println!("{}", warmroute_e2e::envoy_binary::path()?.display());
            Ok(())
        }
    }
}
