//! Keeps the requests of a session with one worker.

use std::net::SocketAddr;

use crate::host::{Host, SharedValue, WriteIf};
use crate::shared::{BoundSession, PoolKeys, SessionPage};
use crate::wishes::Session;

/// Prompt tokens that a session's worker may have in hand beyond the least loaded candidate; with more it is saturated, and
/// the session goes where the policy says. Some four seconds of prefill on one large accelerator.
pub const MOST_SURPLUS_TOKENS: u64 = 65_536;

/// A pool's sessions.
#[derive(Debug)]
pub struct Sessions {
    keys: PoolKeys,
    /// How long after its last request a session is kept, in microseconds.
    ttl_us: u64,
}

// === impl Sessions ===

impl Sessions {
    /// The sessions of the pool of this name.
    pub fn new(pool: &str, ttl_us: u64) -> Self {
        Self { keys: PoolKeys::new(pool), ttl_us }
    }

    /// The worker that a session was last sent to.
    pub fn worker(&mut self, host: &impl Host, session: Session, now_us: u64) -> Option<SocketAddr> {
        let page = SessionPage::decode(&host.shared(self.keys.sessions(session.0))?.bytes);
        page.find(session.0, now_us, self.ttl_us).map(|bound| bound.worker)
    }

    /// A session was sent to a worker. What is written already, not long ago, is not written again; a write that loses its
    /// race is left out: the session's next request makes up for it.
    pub fn bind(&mut self, host: &impl Host, session: Session, worker: SocketAddr, now_us: u64) {
        let key = self.keys.sessions(session.0);
        let found = host.shared(key);
        let bytes = found.as_ref().map(|value| value.bytes.as_slice()).unwrap_or_default();
        let mut page = SessionPage::decode(bytes);
        let known = page.find(session.0, now_us, self.ttl_us / 8);
        if known.is_some_and(|known| known.worker == worker) {
            return;
        }
        page.bind(BoundSession { session: session.0, used_at_us: now_us, worker }, self.ttl_us);
        let condition = found.map_or(WriteIf::Absent, |SharedValue { cas, .. }| WriteIf::Unchanged(cas));
        let _ = host.set_shared(key, &page.encode(), condition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_session_is_known_to_all_threads_until_it_has_not_been_used_for_its_time() {
        let host = FakeHost::default();
        let (mut one, mut two) = (Sessions::new("p", 8 * SECOND), Sessions::new("p", 8 * SECOND));
        let (a, b) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 1).into());
        assert_eq!(one.worker(&host, Session(5), 0), None);
        one.bind(&host, Session(5), a, 0);
        assert_eq!(two.worker(&host, Session(5), SECOND), Some(a));
        // Being used keeps it.
        for now_s in 1..20 {
            two.bind(&host, Session(5), a, now_s * SECOND);
        }
        assert_eq!(one.worker(&host, Session(5), 20 * SECOND), Some(a));
        two.bind(&host, Session(5), b, 20 * SECOND);
        assert_eq!(one.worker(&host, Session(5), 20 * SECOND), Some(b));
        assert_eq!(one.worker(&host, Session(5), 30 * SECOND), None);
    }

    #[test]
    fn a_session_in_steady_use_is_seldom_written() {
        let host = FakeHost::default();
        let mut sessions = Sessions::new("p", 80 * SECOND);
        for now_s in 0..10 {
            sessions.bind(&host, Session(5), ([10, 0, 0, 1], 1).into(), now_s * SECOND);
        }
        assert_eq!(host.shared(PoolKeys::new("p").sessions(5)).unwrap().cas, 1);
    }
}
