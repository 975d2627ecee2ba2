//! The whole engine as a server: sockets, scheduler, driver, HTTP.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::serve::ListenerExt;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cache::BlockCache;
use crate::config::Config;
use crate::engine::Engine;
use crate::events::{self, EventSockets};
use crate::http::{self, App};
use crate::scheduler::Scheduler;

/// How long clients have to take the rest of their answers when the server stops.
const GRACE: Duration = Duration::from_secs(1);

/// A running engine.
#[derive(Debug)]
pub struct Server {
    addresses: Addresses,
    engine: Arc<Engine>,
    sockets: Option<EventSockets>,
    driver: JoinHandle<()>,
    http: JoinHandle<std::io::Result<()>>,
    stop_http: oneshot::Sender<()>,
}

/// Where a server can be reached, with the ports that were bound. As JSON it is the line that the program prints when
/// it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Addresses {
    /// HTTP.
    pub listen: SocketAddr,
    /// The PUB endpoint.
    pub events: Option<String>,
    /// The replay ROUTER endpoint.
    pub replay: Option<String>,
}

// === impl Server ===

impl Server {
    /// Binds all sockets and starts to serve. Hashes start at a random seed.
    ///
    /// # Errors
    ///
    /// If an address cannot be bound.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let listen = listener.local_addr().context("cannot tell the listen address")?;
        let (publisher, sockets) = events::start(&config).await?.unzip();
        let cache = BlockCache::new(config.block_tokens(), config.cache_blocks(), random_seed());
        let engine = Engine::new(Scheduler::new(cache, config.time_model(), config.limits()), publisher);
        let addresses = Addresses {
            listen,
            events: sockets.as_ref().map(|sockets| sockets.events.clone()),
            replay: sockets.as_ref().and_then(|sockets| sockets.replay.clone()),
        };
        let app =
            App::new(engine.clone(), Arc::new(config), addresses.events.clone(), addresses.replay.clone());
        let (stop_http, stopped) = oneshot::channel();
        let http = tokio::spawn(serve(listener, http::router(app, &listen.to_string()), stopped));
        let driver = tokio::spawn(drive(engine.clone()));
        Ok(Self { addresses, engine, sockets, driver, http, stop_http })
    }

    /// Where it can be reached.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Stops: no new connections, running requests end with an error, all sockets are closed.
    pub async fn stop(self) {
        // An error means that the HTTP task has ended, which is what this is for.
        let _ended = self.stop_http.send(());
        self.engine.shut_down();
        self.driver.abort();
        let mut http = self.http;
        if tokio::time::timeout(GRACE, &mut http).await.is_err() {
            http.abort();
        }
        if let Some(sockets) = self.sockets {
            sockets.stop().await;
        }
    }
}

async fn serve(
    listener: TcpListener,
    router: axum::Router,
    stopped: oneshot::Receiver<()>,
) -> std::io::Result<()> {
    // Tokens are small and must not wait for one another.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let stopped = async {
        // A dropped server stops too.
        let _dropped = stopped.await;
    };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await
}

async fn drive(engine: Arc<Engine>) {
    engine.drive().await;
}

/// Drawn by the process, so that no consumer can rely on hashes.
fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
