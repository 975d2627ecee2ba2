//! `run --config FILE`: serves.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;
use warmroute_collector::server::Server;

use super::logging::{self, LogFormat};
use super::watch::Watch;

/// Listens to the engines of a configuration and serves its pools.
///
/// Once it serves, its address is printed on stdout as one JSON line. SIGTERM and SIGINT stop it. The
/// configuration is read again where it changes, and at SIGHUP.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The configuration, a YAML file.
    #[arg(long)]
    config: PathBuf,
    /// Reads the configuration, says what is wrong with it or `configuration ok`, and ends.
    #[arg(long)]
    check: bool,
    /// How the log is written, to stderr. What is logged, RUST_LOG says.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let watch = Watch::start(&arguments.config)
        .with_context(|| format!("configuration {}", arguments.config.display()))?;
    if arguments.check {
        println!("configuration ok");
        return Ok(ExitCode::SUCCESS);
    }
    logging::start(arguments.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(watch))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(watch: Watch) -> anyhow::Result<()> {
    // Before the address is told: whoever knows it may stop the process.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let hangup = signal(SignalKind::hangup())?;
    let config = watch.config();
    let server =
        Server::start(config).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    tell(server.address()?)?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let reloader = server.reloader();
    // The watch ends with whatever ends first.
    tokio::select! {
        result = server.serve(stop) => result?,
        () = watch.run(reloader, hangup) => {}
    }
    info!("stopped");
    Ok(())
}

/// Tells the address: to whoever reads the log, and to whoever started the process with port 0.
fn tell(address: SocketAddr) -> std::io::Result<()> {
    info!(%address, "serving");
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{{\"listen\":\"{address}\"}}")?;
    stdout.flush()
}
