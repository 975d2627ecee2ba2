//! What other proxies have in flight, as the filter weighs it.
//!
//! The publisher writes what the collector tells into shared data. It is read again at most every few milliseconds: a call
//! into the host for each request would cost more than knowing that much sooner gains.
//!
//! What is not renewed loses its say (see [`warmroute_routing::loads::say`]): the others' load by the time since the
//! collector told of it, an engine's load that nobody booked by the time since the engine did.

use std::time::Duration;

use warmroute_routing::choose::Load;
use warmroute_routing::loads::{FleetLoad, FleetRow, QUARTERS, say};

use crate::host::Host;
use crate::ledger::{Ledger, Place};
use crate::shared::{HeardFleet, PoolKeys};

/// What was read less long ago than this is not read again, in microseconds.
const JUST_NOW_US: u64 = 10_000;

/// A pool's load by others than this proxy.
#[derive(Debug)]
pub struct Fleet {
    key: String,
    /// When shared data was last looked at, in microseconds since 1970.
    read_at_us: u64,
    /// The write that `rows` was read from.
    rows_of: Option<u32>,
    /// When the collector told of it, in microseconds since 1970.
    heard_at_us: u64,
    /// By the ledger's places.
    rows: Vec<Row>,
    /// What is left of the others' say, in quarters.
    say: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    others: Load,
    unbooked: Load,
    /// How old the engine's word was when the collector passed it on, in milliseconds.
    engine_age_ms: u32,
}

// === impl Fleet ===

impl Fleet {
    /// The load of the pool of this name.
    pub fn new(pool: &str) -> Self {
        let key = PoolKeys::new(pool).fleet().to_owned();
        Self { key, read_at_us: 0, rows_of: None, heard_at_us: 0, rows: Vec::new(), say: 0 }
    }

    /// Looks at what the publisher has written, if that was not done just now.
    pub fn read(&mut self, host: &impl Host, ledger: &mut Ledger, now_us: u64) {
        if now_us.saturating_sub(self.read_at_us) >= JUST_NOW_US || now_us < self.read_at_us {
            self.read_at_us = now_us;
            self.look(host, ledger);
        }
        self.say = say(Duration::from_micros(now_us.saturating_sub(self.heard_at_us)));
    }

    fn look(&mut self, host: &impl Host, ledger: &mut Ledger) {
        let Some(value) = host.shared(&self.key) else { return };
        if self.rows_of == Some(value.cas) {
            return;
        }
        self.rows_of = Some(value.cas);
        self.rows.clear();
        // What cannot be read tells of nothing.
        let Some(heard) = HeardFleet::decode(&value.bytes) else { return };
        let Ok(fleet) = FleetLoad::decode(heard.answer) else { return };
        self.heard_at_us = heard.heard_at_us;
        for row in &fleet.rows {
            self.take_in(ledger.place(row.worker), row);
        }
    }

    fn take_in(&mut self, place: Place, row: &FleetRow) {
        let place = place.number();
        if place >= self.rows.len() {
            self.rows.resize(place + 1, Row::default());
        }
        if let Some(known) = self.rows.get_mut(place) {
            let engine = row.engine.unwrap_or_default();
            *known = Row { others: row.others, unbooked: engine.unbooked, engine_age_ms: engine.age_ms };
        }
    }

    /// What a worker has in hand of others' requests, as of the last [`Fleet::read`].
    pub fn load(&self, place: Place) -> Load {
        let Some(row) = self.rows.get(place.number()).filter(|_| self.say > 0) else {
            return Load::default();
        };
        let others = row.others.part(self.say, QUARTERS);
        if row.unbooked.is_none() {
            return others;
        }
        let age_us = self.read_at_us.saturating_sub(self.heard_at_us);
        let age = Duration::from_millis(row.engine_age_ms.into()) + Duration::from_micros(age_us);
        others.plus(row.unbooked.part(say(age), QUARTERS))
    }
}

#[cfg(test)]
mod tests {
    use warmroute_routing::loads::{EngineState, WorkerKey};

    use super::*;
    use crate::host::fake::FakeHost;

    const SECOND: u64 = 1_000_000;
    const KEY: &str = "warmroute/1/p/fleet";

    fn worker(port: u16) -> WorkerKey {
        WorkerKey { address: ([127, 0, 0, 1], port).into(), rank: Some(0) }
    }

    fn load(requests: u32) -> Load {
        Load { requests, prefill_tokens: 100, blocks: 0 }
    }

    fn tell(host: &FakeHost, heard_at_us: u64, rows: Vec<FleetRow>) {
        let answer = FleetLoad { position: heard_at_us, rows }.encode();
        host.put(KEY, &HeardFleet { heard_at_us, answer: &answer }.encode());
    }

    fn row(port: u16, requests: u32) -> FleetRow {
        FleetRow { worker: worker(port), others: load(requests), engine: None }
    }

    #[test]
    fn what_others_have_counts_until_it_is_told_otherwise() {
        let (host, mut ledger, mut fleet) = (FakeHost::default(), Ledger::default(), Fleet::new("p"));
        let (a, b) = (ledger.place(worker(1)), ledger.place(worker(2)));
        fleet.read(&host, &mut ledger, SECOND);
        assert_eq!(fleet.load(a), Load::default());
        tell(&host, SECOND, vec![row(2, 8)]);
        fleet.read(&host, &mut ledger, SECOND + JUST_NOW_US);
        assert_eq!((fleet.load(a), fleet.load(b)), (Load::default(), load(8)));
        tell(&host, SECOND, vec![row(1, 3)]);
        fleet.read(&host, &mut ledger, SECOND + 2 * JUST_NOW_US);
        assert_eq!((fleet.load(a), fleet.load(b)), (load(3), Load::default()));
        host.put(KEY, b"rubbish");
        fleet.read(&host, &mut ledger, SECOND + 3 * JUST_NOW_US);
        assert_eq!(fleet.load(a), Load::default());
    }

    #[test]
    fn what_was_read_just_now_is_not_read_again() {
        let (host, mut ledger, mut fleet) = (FakeHost::default(), Ledger::default(), Fleet::new("p"));
        tell(&host, SECOND, vec![row(1, 3)]);
        fleet.read(&host, &mut ledger, SECOND);
        let reads = host.reads.get();
        fleet.read(&host, &mut ledger, SECOND + JUST_NOW_US - 1);
        assert_eq!(host.reads.get(), reads);
    }

    #[test]
    fn what_is_not_renewed_loses_its_say() {
        let (host, mut ledger, mut fleet) = (FakeHost::default(), Ledger::default(), Fleet::new("p"));
        let place = ledger.place(worker(1));
        tell(&host, SECOND, vec![row(1, 8)]);
        let requests = [1_000, 2_499, 2_500, 3_000, 3_500, 4_000].map(|now_ms| {
            fleet.read(&host, &mut ledger, now_ms * 1000);
            fleet.load(place).requests
        });
        assert_eq!(requests, [8, 8, 6, 4, 2, 0]);
    }

    #[test]
    fn an_engines_word_ages_from_when_it_was_spoken() {
        let (host, mut ledger, mut fleet) = (FakeHost::default(), Ledger::default(), Fleet::new("p"));
        let place = ledger.place(worker(1));
        let engine = EngineState { age_ms: 1_400, unbooked: load(4), ..EngineState::default() };
        tell(&host, SECOND, vec![FleetRow { engine: Some(engine), ..row(1, 8) }]);
        fleet.read(&host, &mut ledger, SECOND);
        assert_eq!(fleet.load(place).requests, 12);
        fleet.read(&host, &mut ledger, SECOND + 100_000);
        assert_eq!(fleet.load(place).requests, 8 + 3);
    }
}
