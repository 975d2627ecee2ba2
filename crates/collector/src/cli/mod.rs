//! The command line.

mod explain;
mod http;
mod inspect;
mod logging;
mod replay;
mod run;
mod table;
mod tokenize;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Listens to the engines' KV-cache events, keeps the exact index and publishes it to every Envoy.
#[derive(Debug, Parser)]
#[command(name = "warmroute-collector", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Replay(replay::Arguments),
    Inspect(inspect::Arguments),
    Explain(explain::Arguments),
    Tokenize(tokenize::Arguments),
}

/// What the command line says is wrong, or what the user wrote.
const USAGE_ERROR: u8 = 2;

/// Runs the command that the command line names.
pub(crate) fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Tokenize(arguments) => tokenize::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("warmroute-collector: {error:#}");
        ExitCode::from(USAGE_ERROR)
    })
}
