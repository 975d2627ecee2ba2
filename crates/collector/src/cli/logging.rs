//! The log.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// What is logged where `RUST_LOG` does not say. The ZeroMQ crate tells of each reconnection; so do we.
const DEFAULT_FILTER: &str = "info,zeromq=off";

/// How the log is written.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// A JSON object each line.
    Json,
}

/// Starts the log, on stderr.
pub(super) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
}
