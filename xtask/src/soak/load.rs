//! The load: requests at a fixed rate, whether or not those before have been answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use warmroute_e2e::Client;

use super::conversations::{Conversation, Conversations};
use super::exchange::{Exchange, exchange};
use super::request::{Kind, Request};
use super::shared::Shared;
use warmroute_e2e::Dice;

/// A client's connections are given up after so long. It must be well below the drain time of Envoy's old listeners
/// (see `DRAIN_S`): what is still connected at its end is cut off, with or without warmroute.
const CLIENT_LIFE: Duration = Duration::from_secs(2);

/// Where requests go.
#[derive(Clone)]
pub(crate) struct Doors {
    pub(crate) warmroute: String,
    pub(crate) plain: String,
}

/// The clients of a short time.
#[derive(Clone)]
struct Clients {
    warmroute: Client,
    plain: Client,
}

/// Sends until the end of the run, and waits for the last answers.
pub(crate) async fn send(shared: Arc<Shared>, doors: Doors, rate: f64, dice: Dice) -> Result<()> {
    let conversations = Arc::new(Mutex::new(Conversations::new(dice.fork(1))));
    let mut kinds = dice.fork(2);
    let mut tick = interval(Duration::from_secs_f64(1.0 / rate));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst); // late is late: the rate is the rate
    let mut running = JoinSet::new();
    let (mut clients, mut since) = (Clients::new(&doors)?, Instant::now());
    loop {
        tick.tick().await;
        if Instant::now() >= shared.end {
            break;
        }
        if since.elapsed() > CLIENT_LIFE {
            (clients, since) = (Clients::new(&doors)?, Instant::now());
        }
        while let Some(done) = running.try_join_next() {
            done.context("a request's task died")?;
        }
        let (kind, dice) = (Kind::draw(&mut kinds), kinds.fork(3));
        let one =
            one(Arc::clone(&shared), clients.clone(), doors.clone(), Arc::clone(&conversations), kind, dice);
        running.spawn(one);
    }
    while let Some(done) = running.join_next().await {
        done.context("a request's task died")?;
    }
    Ok(())
}

/// One request of a kind.
async fn one(
    shared: Arc<Shared>,
    clients: Clients,
    doors: Doors,
    conversations: Arc<Mutex<Conversations>>,
    kind: Kind,
    mut dice: Dice,
) {
    let conversations = || conversations.lock().unwrap_or_else(PoisonError::into_inner);
    let conversation = kind.is_turn().then(|| conversations().take());
    let prompt = conversation.as_ref().map(Conversation::prompt).unwrap_or_default();
    let request = Request::new(kind, prompt, &mut dice);
    let (client, url) = match kind {
        Kind::Plain => (clients.plain, doors.plain),
        _ => (clients.warmroute, doors.warmroute),
    };
    let Exchange { fate, answer } = exchange(&shared, &client, &url, kind, &request, &mut dice).await;
    shared.tally().add(kind.as_str(), fate);
    if let Some(conversation) = conversation {
        conversations().give_back(conversation, &answer);
    }
}

// === impl Clients ===

impl Clients {
    fn new(doors: &Doors) -> Result<Self> {
        Ok(Self {
            warmroute: Client::http1(doors.warmroute.clone())?,
            plain: Client::http1(doors.plain.clone())?,
        })
    }
}
