//! The collector at work: pools behind an HTTP server.

mod admin;
mod feed;
mod health;
mod load;
mod metrics;
mod pools;
mod prompts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::config::Config;
use crate::metrics::Metrics;
use crate::pool::Tasks;
use crate::prompts::Prompts;
use crate::snapshot::Keeper;

use self::pools::Pools;
pub use self::pools::{Load, Reloader};

/// Requests under way may take so long to end once the collector stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A collector that is bound to its address and not serving yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    state: AppState,
    stopping: watch::Sender<bool>,
    tasks: Tasks,
    snapshots: Option<Keeper>,
    /// The address of the configuration.
    listen: SocketAddr,
}

/// What the handlers share.
#[derive(Clone, Debug)]
struct AppState {
    pools: Pools,
    prompts: Prompts,
    metrics: Arc<Metrics>,
    stopping: watch::Receiver<bool>,
}

// === impl Server ===

impl Server {
    /// Binds the address and starts the pools.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn start(config: &Config) -> std::io::Result<Self> {
        let listener = TcpListener::bind(config.listen).await?;
        let (stopping, stopped) = watch::channel(false);
        let state = AppState {
            pools: Pools::default(),
            prompts: Prompts::new(),
            metrics: Arc::new(Metrics::new()),
            stopping: stopped,
        };
        let snapshots = config.snapshots.clone().map(Keeper::new);
        let tasks = Tasks::default();
        let server = Self { listener, state, stopping, tasks, snapshots, listen: config.listen };
        server.reloader().start(config);
        if let Some(keeper) = server.snapshots.clone() {
            let pools = server.state.pools.clone();
            server.tasks.spawn(keeper.run(move || pools.all()));
        }
        Ok(server)
    }

    /// What takes over new configurations while it serves.
    pub fn reloader(&self) -> Reloader {
        let AppState { pools, prompts, metrics, .. } = &self.state;
        let (tasks, snapshots) = (self.tasks.clone(), self.snapshots.clone());
        Reloader::new(pools.clone(), prompts.clone(), Arc::clone(metrics), tasks, snapshots, self.listen)
    }

    /// The address, with the port that was taken for port 0.
    ///
    /// # Errors
    ///
    /// The socket does not tell.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is done; then ends long polls, lets requests end, keeps what is known, and ends everything.
    ///
    /// # Errors
    ///
    /// The listener has failed.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        let Self { listener, state, stopping, tasks, snapshots, .. } = self;
        let pools = state.pools.clone();
        let mut stopped = state.stopping.clone();
        let app = router(state);
        // An answer's last bytes must not wait until the first are acknowledged: that is how fresh an index is.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                debug!(%error, "cannot set TCP_NODELAY");
            }
        });
        let serving = axum::serve(listener, app).with_graceful_shutdown(async move {
            stop.await;
            info!("stopping");
            stopping.send_replace(true);
        });
        let result = tokio::select! {
            result = async { serving.await } => result,
            () = too_late(&mut stopped) => {
                warn!("requests are still under way; ending without them");
                Ok(())
            }
        };
        if let Some(keeper) = snapshots {
            keeper.write_all(pools.all()).await;
        }
        tasks.shutdown().await;
        result
    }
}

fn router(state: AppState) -> Router {
    Router::new()
        .route("/v1/pools/{pool}/feed", get(feed::feed))
        .route("/v1/pools/{pool}/load", post(load::load).layer(DefaultBodyLimit::max(load::MAX_BYTES)))
        .route("/v1/pools/{pool}/workers", get(admin::workers))
        .route(
            "/v1/pools/{pool}/explain",
            post(admin::explain).layer(DefaultBodyLimit::max(admin::MAX_QUESTION_BYTES)),
        )
        .route(
            "/v1/prompt-blocks",
            post(prompts::prompt_blocks).layer(DefaultBodyLimit::max(prompts::MAX_BODY_BYTES)),
        )
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .with_state(state)
}

/// Waits until stopping has taken too long.
async fn too_late(stopped: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server.
    let _ = stopped.wait_for(|stopped| *stopped).await;
    tokio::time::sleep(STOP_TIMEOUT).await;
}
