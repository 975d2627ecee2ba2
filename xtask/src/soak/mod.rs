//! `cargo xtask soak`: load at a fixed rate while parts are killed, frozen, started again and configured anew.
//!
//! ```text
//! load (open loop) --> Envoy with warmroute --> engines, one of them down now and then
//! disturb ----------> collector: SIGKILL, SIGTERM, SIGSTOP; engines: SIGKILL, SIGTERM; Envoy: new listeners
//! watch ------------> memory every second, counters every ten
//! ```
//!
//! # What counts as a failed request
//!
//! Whatever is not answered with status 200 and a whole body, with one exception: an answer that *had begun*, from an
//! engine that was taken down before it ended. Its headers are with the client then, so no proxy could send the request
//! anywhere else; plain Envoy would lose it too. These are counted as *cut*. Everything before an answer's first byte is
//! retried by plain Envoy under the shipped retry policy (one engine of four is down, two retries on other hosts), so a
//! request that fails there is failed here, streamed or not. Clients that leave by themselves are counted as *left*.
//!
//! Four of a hundred requests go through the listener without warmroute, to see what plain Envoy makes of the same
//! engines at the same time. They are told and not asserted.
//!
//! The same `--seed` draws the same requests and disturbances. What meets what still depends on the machine's timing.

mod conversations;
mod disturb;
mod exchange;
mod load;
pub(crate) mod memory;
mod report;
mod request;
mod shared;
mod tally;
mod watch;

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use tokio::time::Instant;
use warmroute_e2e::{Client, Dice, Stack, envoy_binary, wait};

use self::disturb::Disturber;
use self::load::Doors;
use self::report::Report;
use self::shared::Shared;
use self::watch::{Counted, Watched};
use crate::{build, demo};

/// How long Envoy keeps old listeners for those who are still connected. Its default of ten minutes would have the
/// memory of a soak full of old configurations.
const DRAIN_S: &str = "15";

/// After the last answer nothing is left to be done.
const IDLE_DEADLINE: Duration = Duration::from_secs(10);

/// What Envoy logs of a VM that has died.
const CRASHES: [&str; 3] = ["panicked at", "VM failed", "Wasm VM is failed"];

#[derive(Args)]
pub(crate) struct Options {
    /// How long
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Draws requests and disturbances; printed, to try again
    #[arg(long)]
    seed: Option<u64>,
    /// Requests a second
    #[arg(long, default_value_t = 40.0)]
    rate: f64,
    /// Write the figures to FILE, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Builds, starts, disturbs, reports. Nothing is left running, however it ends.
///
/// Nothing is built where `WARMROUTE_BIN_DIR` and `WARMROUTE_WASM` name what to run.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.minutes > 0.0 && options.rate > 0.0, "--minutes and --rate must be above 0");
    if env::var_os("WARMROUTE_BIN_DIR").is_none() || env::var_os("WARMROUTE_WASM").is_none() {
        build::all()?;
    }
    eprintln!("Envoy: {}", envoy_binary::path()?.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            done = soak(options) => done,
            // What was started ends with the future that holds it.
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

async fn soak(options: &Options) -> Result<()> {
    let seed = options.seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("seed: {seed}");
    let mut stack = demo::stack("soak").reloadable().envoy_flags(["--drain-time-s", DRAIN_S]).start().await?;
    stack.wait_until_steering().await?;
    let admin = Client::http1(stack.envoy.admin_url())?;
    let before = Counted::ask(&admin).await?;

    let start = Instant::now();
    let shared = Arc::new(Shared::new(start, start + Duration::from_secs_f64(options.minutes * 60.0)));
    let run = disturbed(&mut stack, &shared, &admin, options.rate, seed).await;
    let (disturbances, watched) = run.map_err(|error| anyhow!("{error:#}\n{}", stack.envoy.log_tail(10)))?;

    let held = requests_left(&stack).await?;
    let log = stack.envoy.log();
    let mut counted = Counted::ask(&admin).await?;
    counted.decisions = counted.decisions.since(&before.decisions);
    let (requests, sum, failures) = Report::requests_of(&shared.tally());
    let report = Report {
        minutes: options.minutes,
        seed,
        rate: options.rate,
        requests,
        sum,
        failures,
        disturbances,
        watched,
        counted,
        held,
        crashes: log.lines().filter(|line| tells_of_a_crash(line)).map(str::to_owned).collect(),
    };
    println!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.to_json()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let broken = report.broken();
    ensure!(broken.is_empty(), "it did not hold that {}", broken.join(", that "));
    // This finds an Envoy that has ended: nobody here starts it again, so one that lives is the one that was started.
    stack.stop().await
}

/// The run itself.
async fn disturbed(
    stack: &mut Stack,
    shared: &Arc<Shared>,
    admin: &Client,
    rate: f64,
    seed: u64,
) -> Result<(BTreeMap<&'static str, u64>, Watched)> {
    let dice = Dice::new(seed);
    let doors = Doors { warmroute: stack.url(), plain: stack.plain_url() };
    let envoy = stack.envoy.process_mut().id();
    let disturber = Disturber::new(stack, shared, dice.fork(1));
    let load = load::send(Arc::clone(shared), doors, rate, dice.fork(2));
    let (disturbances, watched, ()) =
        tokio::try_join!(disturber.run(), watch::watch(shared, envoy, admin), load)?;
    Ok((disturbances, watched))
}

/// Requests that Envoy still holds although every client is gone or answered.
async fn requests_left(stack: &Stack) -> Result<u64> {
    let active = async || -> Result<u64> {
        let stats =
            stack.envoy.stats("^(http.warmroute.downstream|cluster.workers.upstream)_rq_active$").await?;
        Ok(stats.values().sum())
    };
    let idle = wait::until_ok(IDLE_DEADLINE, "Envoy to be idle", async || {
        ensure!(active().await? == 0, "requests are left");
        anyhow::Ok(())
    });
    if idle.await.is_ok() { Ok(0) } else { active().await }
}

fn tells_of_a_crash(line: &str) -> bool {
    CRASHES.iter().any(|told| line.contains(told))
}
