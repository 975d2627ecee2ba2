//! Doors: sockets that engines dial.
//!
//! ```text
//! engine 10.0.0.1:8000 --+                +--> subscriber of 10.0.0.1:8000
//!                        +--> SUB (bound) +
//! engine 10.0.0.2:8000 --+   by topic     +--> subscriber of 10.0.0.2:8000
//! ```
//!
//! Several engines may come in by one door; a message's topic, `kv@ip:port@model`, says whose it is. Where only one worker
//! uses a door, a topic that tells no worker is his.
//!
//! A door cannot tell which of its engines has hung up. So when one does, all who use it are told that they may have
//! missed something.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::{debug, warn};
use warmroute_wire::sequence::Frame;
use warmroute_wire::worker_of_topic;

use super::backoff::Backoff;
use super::socket::{EventSocket, Received};
use crate::config::Endpoint;

/// Messages that may wait for a worker's subscriber: the door waits beyond that.
const WAITING: usize = 64;

/// The doors of a pool. Clones are the same doors.
#[derive(Clone, Debug, Default)]
pub struct Doors(Arc<Mutex<HashMap<Endpoint, Door>>>);

/// One worker's place behind a door. It is given up where it is dropped.
#[derive(Debug)]
pub struct Guest {
    doors: Doors,
    endpoint: Endpoint,
    visits: mpsc::Receiver<Visit>,
    /// What [`Guest::arrived`] has seen.
    first: Option<Visit>,
}

/// What comes in by a door.
#[derive(Debug)]
pub(super) enum Visit {
    Batch(Frame),
    /// An engine is gone, perhaps this worker's.
    Doubt,
}

/// An open door.
#[derive(Debug)]
struct Door {
    routes: Routes,
    task: AbortHandle,
}

type Routes = Arc<Mutex<HashMap<SocketAddr, mpsc::Sender<Visit>>>>;

// === impl Doors ===

impl Doors {
    /// Opens a door, if it is not open yet, and waits behind it for a worker's messages. A worker has one place behind a
    /// door: the last that was taken.
    pub fn enter(&self, endpoint: Endpoint, worker: SocketAddr) -> Guest {
        let (sender, visits) = mpsc::channel(WAITING);
        let mut doors = lock(&self.0);
        let door = doors.entry(endpoint.clone()).or_insert_with(|| {
            let routes = Routes::default();
            let task = tokio::spawn(keep_open(endpoint.clone(), Arc::clone(&routes)));
            Door { routes, task: task.abort_handle() }
        });
        lock(&door.routes).insert(worker, sender);
        drop(doors);
        Guest { doors: self.clone(), endpoint, visits, first: None }
    }
}

// === impl Guest ===

impl Guest {
    /// Where the door is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Waits until the worker's engine is there, which is when its first message is.
    pub(super) async fn arrived(&mut self) {
        while !matches!(self.first, Some(Visit::Batch(_))) {
            self.first = Some(self.receive().await);
        }
    }

    /// Waits for what comes next. Nothing is lost where the future is dropped early.
    pub(super) async fn receive(&mut self) -> Visit {
        if let Some(first) = self.first.take() {
            return first;
        }
        match self.visits.recv().await {
            Some(visit) => visit,
            // Another has taken the place: nothing comes any more.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut doors = lock(&self.doors.0);
        let Some(door) = doors.get(&self.endpoint) else { return };
        let mut routes = lock(&door.routes);
        // The place may be another's by now.
        self.visits.close();
        routes.retain(|_, sender| !sender.is_closed());
        let unused = routes.is_empty();
        drop(routes);
        if unused && let Some(door) = doors.remove(&self.endpoint) {
            door.task.abort();
        }
    }
}

async fn keep_open(endpoint: Endpoint, routes: Routes) {
    let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    let mut strangers = Strangers::default();
    loop {
        match EventSocket::bind(&endpoint).await {
            Ok(mut socket) => {
                pauses.reset();
                receive(&mut socket, &endpoint, &routes, &mut strangers).await;
            }
            Err(error) => warn!(%endpoint, %error, "cannot listen for engines; trying on"),
        }
        tokio::time::sleep(pauses.next()).await;
    }
}

/// Lets engines in until the socket fails.
async fn receive(socket: &mut EventSocket, endpoint: &Endpoint, routes: &Routes, strangers: &mut Strangers) {
    loop {
        match socket.receive_any().await {
            Some(Received::Batch { frame, topic }) => match route(routes, &topic) {
                // A subscriber that is gone wants nothing more.
                Some(sender) => drop(sender.send(Visit::Batch(frame)).await),
                None => strangers.came(endpoint, &topic),
            },
            Some(Received::Undecodable) => debug!(%endpoint, "a message was left out"),
            Some(Received::Lost) => {
                let senders: Vec<_> = lock(routes).values().cloned().collect();
                for sender in senders {
                    let _ = sender.send(Visit::Doubt).await;
                }
            }
            None => return,
        }
    }
}

/// Whose a message is.
fn route(routes: &Routes, topic: &[u8]) -> Option<mpsc::Sender<Visit>> {
    let routes = lock(routes);
    match worker_of_topic(topic) {
        Some(worker) => routes.get(&worker).cloned(),
        None if routes.len() == 1 => routes.values().next().cloned(),
        None => None,
    }
}

/// Tells of messages that are nobody's: the first, and at debug level all others.
#[derive(Debug, Default)]
struct Strangers(bool);

// === impl Strangers ===

impl Strangers {
    fn came(&mut self, endpoint: &Endpoint, topic: &[u8]) {
        let topic = String::from_utf8_lossy(topic);
        if std::mem::replace(&mut self.0, true) {
            debug!(%endpoint, %topic, "a message of no worker that is known here");
        } else {
            warn!(%endpoint, %topic, "a message of no worker that is known here; topics are to be `kv@ip:port@model`");
        }
    }
}

/// A lock whose holder has panicked still guards whole values here: nothing is left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
