//! The load of all proxies: each reports what it has in flight, and is told what the others have, and what the engines say.
//!
//! A report is held until there is news for its proxy (see [`warmroute_routing::loads`]), or its next report comes. The
//! books (`books`) know no clock and no network.

mod books;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use warmroute_routing::choose::Load;
use warmroute_routing::loads::{FleetLoad, LoadReport, WorkerKey};

use self::books::Books;
pub use self::books::TooMany;
use crate::gauges::Gauges;

/// The longest that an answer is held. A proxy that is not heard for longer than this fades.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// What all proxies have in flight at a pool's workers. Clones are the same books.
#[derive(Clone, Debug)]
pub struct Fleet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    books: Mutex<Books>,
    /// The position that is news to somebody.
    position: watch::Sender<u64>,
}

/// What becomes of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is answered.
    Answer(FleetLoad),
    /// The proxy has reported anew: that report will be answered.
    Superseded,
}

// === impl Fleet ===

impl Fleet {
    /// Books that nobody has reported to yet. `first_position` is larger than that of any earlier life of this collector.
    /// `block_size`: tokens in a block.
    pub fn new(first_position: u64, block_size: u32) -> Self {
        let books = Mutex::new(Books::new(first_position, block_size));
        Self(Arc::new(Shared { books, position: watch::Sender::new(first_position) }))
    }

    /// Takes in a report, and waits for news for its proxy.
    ///
    /// # Errors
    ///
    /// There are too many proxies.
    pub async fn exchange(
        &self,
        report: LoadReport,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<Outcome, TooMany> {
        let LoadReport { proxy, position: since, wait_ms, rows } = report;
        let begun = Instant::now();
        let deadline = begun + MAX_WAIT.min(Duration::from_millis(wait_ms.into()));
        let turn = self.change(|books| books.report(proxy, rows, begun.into_std()))?;
        let news = async {
            // Whoever was answered just now waits for more to come together.
            sleep_until(turn.not_before.into()).await;
            let mut position = self.0.position.subscribe();
            let is_over = |_: &u64| {
                let books = self.books();
                books.is_superseded(proxy, turn.number) || books.has_news(proxy, since)
            };
            // The sender lives as long as the books.
            let _ = timeout_at(deadline, position.wait_for(is_over)).await;
        };
        tokio::select! {
            () = news => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        let answer = self.change(|books| books.answer(proxy, turn.number, Instant::now().into_std()));
        Ok(answer.map_or(Outcome::Superseded, Outcome::Answer))
    }

    /// Takes in what an engine says of itself. What it has in hand that no proxy has booked.
    pub fn engine(&self, worker: WorkerKey, gauges: Gauges) -> Load {
        self.change(|books| books.engine(worker, gauges, Instant::now().into_std()))
    }

    /// How many proxies are heard.
    pub fn proxies(&self) -> usize {
        self.change(|books| books.proxies(Instant::now().into_std()))
    }

    /// Changes the books, and wakes those who wait if there is news.
    fn change<T>(&self, change: impl FnOnce(&mut Books) -> T) -> T {
        let mut books = self.books();
        let result = change(&mut books);
        let position = books.position();
        drop(books);
        self.0.position.send_if_modified(|known| {
            let is_new = *known < position;
            *known = position.max(*known);
            is_new
        });
        result
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
