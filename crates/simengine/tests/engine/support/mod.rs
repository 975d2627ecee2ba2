//! What the tests share: an engine, an HTTP client, and ZMQ peers that never wait for ever.

mod http;
mod zmq;

use std::time::Duration;

use clap::Parser;
use warmroute_simengine::{Addresses, Config, Server};

pub(crate) use self::http::Client;
pub(crate) use self::zmq::{Replayer, Subscriber};

/// No test waits longer for anything.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Starts an engine with blocks of 4 tokens and next to no waiting, and with `flags` besides.
pub(crate) async fn start(flags: &[&str]) -> (Server, Client) {
    let server = Server::start(config(flags)).await.expect("the engine starts");
    let client = Client::new(server.addresses());
    (server, client)
}

pub(crate) fn config(flags: &[&str]) -> Config {
    const QUICK: [[&str; 2]; 4] = [
        ["--block-size", "4"],
        ["--base-ms", "1"],
        ["--prefill-us-per-token", "1"],
        ["--decode-ms-per-token", "0"],
    ];
    let defaults = QUICK.iter().filter(|[name, _]| !flags.contains(name)).flatten();
    Config::parse_from(["simengine"].iter().chain(defaults).chain(flags))
}

/// `len` token ids from `first` on.
pub(crate) fn tokens(first: u32, len: u32) -> Vec<u32> {
    (first..first + len).collect()
}

/// The event endpoint.
pub(crate) fn events_of(addresses: &Addresses) -> &str {
    addresses.events.as_deref().expect("the engine publishes events")
}

/// Runs `check` until it gives something, for at most [`DEADLINE`].
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut check: impl FnMut() -> F) -> T {
    let polled = async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, polled).await.unwrap_or_else(|_| panic!("{what} did not happen in time"))
}
