//! Discovery: workers that the configuration does not list, and endpoints that it does not name.
//!
//! ```text
//! configuration --+
//! DNS or a file --+--> Roll (pool) --> who is there, where each publishes --> crew, index
//! engines asked --+      |
//!       ^----------------+  whose endpoints are not known
//! ```
//!
//! One task for each pool: it looks where workers are listed (`dns`, `file`), and has one asker for each worker whose
//! endpoints nobody has written (`asker`), which asks the engine itself (`engine`). What they learn goes to the pool's roll;
//! from there on, a worker that was found is one like any other.

mod asker;
mod dns;
mod engine;
mod file;

use std::collections::HashMap;
use std::net::SocketAddr;

use tokio::task::{AbortHandle, JoinSet};
use warmroute_wire::Engine;

use self::asker::Asker;
use self::dns::Names;
use self::file::ListFile;
use crate::config::{Discover, DiscoverFrom};
use crate::pool::Pool;

/// Looks for a pool's workers until the pool stops.
pub async fn run(pool: Pool, engine: Engine, block_size: u32, discover: Option<Discover>) {
    // Dropped with this future, and with it all that runs here.
    let mut tasks = JoinSet::new();
    if let Some(Discover { from, interval }) = discover {
        let pool = pool.clone();
        match from {
            DiscoverFrom::Dns { host, port, source } => {
                tasks.spawn(dns::watch(pool, engine, Names::system(host, port), source, interval));
            }
            DiscoverFrom::File(path) => {
                tasks.spawn(file::watch(pool, engine, ListFile::new(path), interval));
            }
        }
    }
    let mut unknown = pool.unknown();
    let mut askers: HashMap<SocketAddr, AbortHandle> = HashMap::new();
    loop {
        let Some(addresses) = unknown.borrow_and_update().clone() else { return };
        for (_, asker) in askers.extract_if(|address, _| !addresses.contains(address)) {
            asker.abort();
        }
        for address in addresses {
            askers
                .entry(address)
                .or_insert_with(|| tasks.spawn(Asker::new(pool.clone(), engine, block_size, address).run()));
        }
        while tasks.try_join_next().is_some() {}
        if unknown.changed().await.is_err() {
            return;
        }
    }
}
