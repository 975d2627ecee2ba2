//! Who has what in flight, as last reported.
//!
//! The sums over all proxies are kept, and a proxy's own part is taken off in its answer: a report or an answer costs as
//! much as it has rows, however many proxies there are.
//!
//! A report is a state that only its proxy can renew. One that is not renewed loses its say by quarters and is forgotten in
//! the end: its proxy is gone, or cut off, and what it had in flight ends without a word.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use warmroute_routing::choose::Load;
use warmroute_routing::loads::{FleetLoad, FleetRow, QUARTERS, WorkerKey, say};

/// The least time between two answers to one proxy: what bounds the work, however fast everything changes. Ticks, ways and
/// this together stay under 100 ms from one proxy's change to another's knowing.
const PACE: Duration = Duration::from_millis(30);

/// Proxies that are listened to.
const MAX_PROXIES: usize = 1_024;

/// Rows of all their reports: some 50 MiB.
const MAX_ROWS_IN_ALL: usize = 1 << 20;

/// There are more proxies, or they have more to report, than can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more proxies report, or more of each, than can be kept")]
pub struct TooMany;

/// The reports of all proxies of a pool.
#[derive(Debug)]
pub(super) struct Books {
    proxies: HashMap<u64, Proxy>,
    /// Over all proxies, by as much as each has say.
    sums: BTreeMap<WorkerKey, Load>,
    rows_in_all: usize,
    /// The last change.
    latest: Change,
    /// The last change by another than who made the latest.
    before: u64,
}

/// A change of the books.
#[derive(Clone, Copy, Debug)]
struct Change {
    by: u64,
    position: u64,
}

#[derive(Debug)]
struct Proxy {
    /// Its report, ascending by worker.
    rows: Vec<(WorkerKey, Load)>,
    heard_at: Instant,
    /// How much of it is in the sums, in quarters.
    say: u32,
    /// How often it has reported.
    turn: u64,
    answered_at: Option<Instant>,
}

/// A report's place among those of its proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) number: u64,
    /// It is not answered sooner.
    pub(super) not_before: Instant,
}

// === impl Books ===

impl Books {
    pub(super) fn new(first_position: u64) -> Self {
        Self {
            proxies: HashMap::new(),
            sums: BTreeMap::new(),
            rows_in_all: 0,
            // Nobody has the number 0. To who comes with an older position, all is news.
            latest: Change { by: 0, position: first_position },
            before: first_position,
        }
    }

    /// Grows with each change.
    pub(super) fn position(&self) -> u64 {
        self.latest.position
    }

    /// Puts a proxy's report in place of its last.
    pub(super) fn report(
        &mut self,
        proxy: u64,
        mut rows: Vec<(WorkerKey, Load)>,
        now: Instant,
    ) -> Result<Turn, TooMany> {
        self.fade(now);
        let old = self.proxies.get(&proxy);
        let old_rows = old.map_or(0, |old| old.rows.len());
        let rows_in_all = self.rows_in_all.saturating_sub(old_rows).saturating_add(rows.len());
        if rows_in_all > MAX_ROWS_IN_ALL || old.is_none() && self.proxies.len() >= MAX_PROXIES {
            return Err(TooMany);
        }
        rows.sort_unstable_by_key(|(worker, _)| *worker);
        let (turn, answered_at) = old.map_or((1, None), |old| (old.turn + 1, old.answered_at));
        let is_same = old.is_some_and(|old| old.say == QUARTERS && old.rows == rows);
        let new = Proxy { rows, heard_at: now, say: QUARTERS, turn, answered_at };
        self.rows_in_all = rows_in_all;
        if is_same {
            self.proxies.insert(proxy, new);
        } else {
            add(&mut self.sums, &new);
            if let Some(old) = self.proxies.insert(proxy, new) {
                subtract(&mut self.sums, &old);
            }
            self.changed(proxy);
        }
        let not_before = answered_at.map_or(now, |at| (at + PACE).max(now));
        Ok(Turn { number: turn, not_before })
    }

    /// Whether the proxy has reported again since.
    pub(super) fn is_superseded(&self, proxy: u64, turn: u64) -> bool {
        self.proxies.get(&proxy).is_none_or(|proxy| proxy.turn != turn)
    }

    /// Whether anybody but the proxy itself has changed anything since a position.
    pub(super) fn has_news(&self, proxy: u64, since: u64) -> bool {
        let last = if self.latest.by == proxy { self.before } else { self.latest.position };
        last > since || since > self.latest.position
    }

    /// What all others have in flight. None: the proxy has reported again since.
    pub(super) fn answer(&mut self, proxy: u64, turn: u64, now: Instant) -> Option<FleetLoad> {
        self.fade(now);
        if self.is_superseded(proxy, turn) {
            return None;
        }
        let own = self.proxies.get_mut(&proxy)?;
        own.answered_at = Some(now);
        let say = own.say;
        let mut own_rows = own.rows.iter().peekable();
        let rows = self.sums.iter().filter_map(|(worker, load)| {
            while own_rows.next_if(|(own, _)| own < worker).is_some() {}
            let own = own_rows.next_if(|(own, _)| own == worker).map_or(Load::default(), |(_, load)| *load);
            let others = load.minus(own.part(say, QUARTERS));
            (!others.is_none()).then_some(FleetRow { worker: *worker, others, engine: None })
        });
        let rows = rows.collect();
        Some(FleetLoad { position: self.latest.position, rows })
    }

    /// How many proxies are heard.
    pub(super) fn proxies(&mut self, now: Instant) -> usize {
        self.fade(now);
        self.proxies.len()
    }

    /// Takes their say from those that have not been heard for long.
    fn fade(&mut self, now: Instant) {
        let mut faded = Vec::new();
        for (number, proxy) in &mut self.proxies {
            let say = say(now.saturating_duration_since(proxy.heard_at));
            if say != proxy.say {
                subtract(&mut self.sums, proxy);
                proxy.say = say;
                add(&mut self.sums, proxy);
                faded.push(*number);
            }
        }
        for number in faded {
            self.changed(number);
            if let Some(gone) = self.proxies.get(&number).filter(|proxy| proxy.say == 0) {
                self.rows_in_all = self.rows_in_all.saturating_sub(gone.rows.len());
                self.proxies.remove(&number);
            }
        }
    }

    fn changed(&mut self, by: u64) {
        if self.latest.by != by {
            self.before = self.latest.position;
        }
        self.latest = Change { by, position: self.latest.position + 1 };
    }
}

fn add(sums: &mut BTreeMap<WorkerKey, Load>, proxy: &Proxy) {
    for (worker, load) in &proxy.rows {
        let sum = sums.entry(*worker).or_default();
        *sum = sum.plus(load.part(proxy.say, QUARTERS));
    }
}

fn subtract(sums: &mut BTreeMap<WorkerKey, Load>, proxy: &Proxy) {
    for (worker, load) in &proxy.rows {
        let Some(sum) = sums.get_mut(worker) else { continue };
        *sum = sum.minus(load.part(proxy.say, QUARTERS));
        if sum.is_none() {
            sums.remove(worker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &[(u16, u32)] = &[];

    fn worker(port: u16) -> WorkerKey {
        WorkerKey { address: ([10, 0, 0, 1], port).into(), rank: Some(0) }
    }

    fn load(requests: u32) -> Load {
        Load { requests, prefill_tokens: 100, blocks: 7 }
    }

    fn rows(loads: &[(u16, u32)]) -> Vec<(WorkerKey, Load)> {
        loads.iter().map(|(port, requests)| (worker(*port), load(*requests))).collect()
    }

    /// Reports and answers at once. The answer's requests by port, and its position.
    fn exchange(books: &mut Books, proxy: u64, loads: &[(u16, u32)], now: Instant) -> (Vec<(u16, u32)>, u64) {
        let turn = books.report(proxy, rows(loads), now).unwrap();
        let answer = books.answer(proxy, turn.number, now).unwrap();
        let requests = answer.rows.iter().map(|row| (row.worker.address.port(), row.others.requests));
        (requests.collect(), answer.position)
    }

    #[test]
    fn each_is_told_what_the_others_have_and_not_what_it_has_itself() {
        let (mut books, now) = (Books::new(100), Instant::now());
        assert_eq!(exchange(&mut books, 1, &[(1, 3), (2, 5)], now).0, []);
        assert_eq!(exchange(&mut books, 2, &[(2, 1), (9, 4)], now).0, [(1, 3), (2, 5)]);
        assert_eq!(exchange(&mut books, 1, &[(2, 5)], now).0, [(2, 1), (9, 4)]);
        assert_eq!(exchange(&mut books, 3, NONE, now).0, [(2, 6), (9, 4)]);
        exchange(&mut books, 1, NONE, now);
        exchange(&mut books, 2, NONE, now);
        assert!(books.sums.is_empty() && books.rows_in_all == 0);
    }

    #[test]
    fn news_is_what_others_change_and_what_an_earlier_life_did_not_tell() {
        let (mut books, now) = (Books::new(100), Instant::now());
        assert!(books.has_news(1, 0) && books.has_news(1, 99) && books.has_news(1, u64::MAX));
        let (_, since) = exchange(&mut books, 1, &[(1, 3)], now);
        assert!(!books.has_news(1, since));
        exchange(&mut books, 1, &[(1, 4)], now);
        assert!(!books.has_news(1, since), "its own change is no news to it");
        exchange(&mut books, 2, NONE, now);
        let (_, since) = exchange(&mut books, 1, &[(1, 4)], now);
        exchange(&mut books, 2, NONE, now);
        assert!(!books.has_news(1, since), "the same report again is no news");
        exchange(&mut books, 2, &[(1, 1)], now);
        exchange(&mut books, 1, NONE, now);
        assert!(books.has_news(1, since), "another's change before its own is");
    }

    #[test]
    fn only_the_last_report_of_a_proxy_is_answered_and_not_too_often() {
        let (mut books, now) = (Books::new(100), Instant::now());
        let first = books.report(1, rows(&[(1, 3)]), now).unwrap();
        assert_eq!(first.not_before, now);
        let second = books.report(1, rows(&[(1, 4)]), now).unwrap();
        assert!(books.is_superseded(1, first.number) && books.answer(1, first.number, now).is_none());
        assert!(books.answer(1, second.number, now).is_some());
        let third = books.report(1, rows(&[(1, 5)]), now + PACE / 2).unwrap();
        assert_eq!(third.not_before, now + PACE);
    }

    #[test]
    fn a_proxy_that_is_not_heard_loses_its_say_by_quarters_and_is_forgotten() {
        let (mut books, now) = (Books::new(100), Instant::now());
        exchange(&mut books, 1, &[(1, 8)], now);
        let (told, mut since) = exchange(&mut books, 2, NONE, now);
        assert_eq!(told, [(1, 8)]);
        for (age_ms, requests) in [(1_499, 8), (1_500, 6), (2_000, 4), (2_500, 2)] {
            let (told, position) = exchange(&mut books, 2, NONE, now + Duration::from_millis(age_ms));
            assert_eq!(told, [(1, requests)], "after {age_ms} ms");
            assert_eq!(position > since, requests != 8);
            since = position;
        }
        assert_eq!(exchange(&mut books, 2, NONE, now + Duration::from_millis(3_000)).0, []);
        assert_eq!((books.proxies.len(), books.rows_in_all), (1, 0));
        // It comes back.
        let later = now + Duration::from_millis(3_100);
        exchange(&mut books, 1, &[(1, 2)], later);
        assert_eq!(exchange(&mut books, 2, NONE, later).0, [(1, 2)]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut books, now) = (Books::new(100), Instant::now());
        for proxy in 1..=MAX_PROXIES as u64 {
            books.report(proxy, rows(&[(1, 1)]), now).unwrap();
        }
        assert_eq!(books.report(5_000, vec![], now).unwrap_err(), TooMany);
        assert!(books.report(7, vec![], now).is_ok(), "who is known already may go on");
        // Those who are gone make room.
        assert!(books.report(5_000, vec![], now + Duration::from_secs(3)).is_ok());
        assert_eq!(books.proxies.len(), 1);
    }
}
