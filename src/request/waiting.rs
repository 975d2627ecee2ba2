//! Requests that wait for a body which may never be shown to the plugin.
//!
//! Without `allow_on_headers_stop_iteration` Envoy takes a pause in the headers for a full stop: no callback for the body
//! ever comes, and the request would hang. So as long as no held request's body has been seen, those that wait too long
//! are freed. One such request proves nothing, its client may be slow; after several without a single body the setting is
//! taken to be missing, the operator is told, and requests are held no longer, but for one now and then, to find out
//! whether that is still so. The first body that is seen ends all this for good.

use std::collections::BTreeMap;

/// How long a request is held while no body has been seen, in microseconds.
const PATIENCE_US: u64 = 500_000;

/// Requests that were freed before the setting is taken to be missing.
const ENOUGH: u32 = 3;

/// After that, one request of so many is held.
const PROBE_EVERY: u32 = 128;

/// The requests that wait. `T` is what it takes to free one.
#[derive(Debug)]
pub struct Waiting<T> {
    /// Whether a held request's body was ever seen.
    body_seen: bool,
    /// The requests by number, with the time since when they wait, in microseconds since 1970.
    held: BTreeMap<u32, (u64, T)>,
    freed: u32,
    passed: u32,
}

/// Those that have waited too long.
#[derive(Debug)]
pub struct Overdue<T> {
    /// What it takes to free them, by number.
    pub requests: Vec<(u32, T)>,
    /// Whether it is now, for the first time, taken for certain that the setting is missing.
    pub conclusive: bool,
}

// === impl Waiting ===

impl<T> Waiting<T> {
    /// Whether a request may be held for its body.
    pub fn may_hold(&mut self) -> bool {
        if self.body_seen || self.freed < ENOUGH {
            return true;
        }
        self.passed = self.passed.wrapping_add(1);
        self.passed.is_multiple_of(PROBE_EVERY)
    }

    /// A request is held from now on.
    pub fn hold(&mut self, request: u32, free: T, now_us: u64) {
        if !self.body_seen {
            self.held.insert(request, (now_us, free));
        }
    }

    /// A part of a held request's body was seen.
    pub fn body_seen(&mut self) {
        if !self.body_seen {
            self.body_seen = true;
            self.held.clear();
        }
    }

    /// A request is over.
    pub fn done(&mut self, request: u32) {
        if !self.held.is_empty() {
            self.held.remove(&request);
        }
    }

    /// Takes out those that have waited too long.
    pub fn overdue(&mut self, now_us: u64) -> Overdue<T> {
        let late = |(since_us, _): &(u64, T)| now_us.saturating_sub(*since_us) >= PATIENCE_US;
        let requests: Vec<_> = self.held.extract_if(.., |_, held| late(held)).collect();
        let before = self.freed;
        self.freed = self.freed.saturating_add(u32::try_from(requests.len()).unwrap_or(u32::MAX));
        let conclusive = before < ENOUGH && self.freed >= ENOUGH;
        Overdue {
            requests: requests.into_iter().map(|(request, (_, free))| (request, free)).collect(),
            conclusive,
        }
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { body_seen: false, held: BTreeMap::new(), freed: 0, passed: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// The numbers of those that are freed.
    fn freed(waiting: &mut Waiting<()>, now_us: u64) -> (Vec<u32>, bool) {
        let overdue = waiting.overdue(now_us);
        (overdue.requests.into_iter().map(|(request, ())| request).collect(), overdue.conclusive)
    }

    #[test]
    fn a_request_whose_body_is_not_seen_is_freed_within_a_second() {
        let mut waiting = Waiting::default();
        waiting.hold(7, (), SECOND);
        assert_eq!(freed(&mut waiting, SECOND + 100_000), (vec![], false));
        assert_eq!(freed(&mut waiting, SECOND + 500_000), (vec![7], false));
        assert_eq!(freed(&mut waiting, SECOND + 900_000), (vec![], false));
        assert!(waiting.may_hold(), "one request proves nothing");
    }

    #[test]
    fn once_a_body_was_seen_nobody_is_freed_however_slow() {
        let mut waiting = Waiting::default();
        waiting.hold(1, (), 0);
        waiting.body_seen();
        waiting.hold(2, (), 0);
        assert_eq!(freed(&mut waiting, 3600 * SECOND), (vec![], false));
    }

    #[test]
    fn after_several_without_a_body_it_is_told_once_and_requests_are_held_no_longer() {
        let mut waiting = Waiting::default();
        (0..5).for_each(|request| waiting.hold(request, (), 0));
        assert_eq!(freed(&mut waiting, SECOND), (vec![0, 1, 2, 3, 4], true));
        waiting.hold(6, (), SECOND);
        assert_eq!(freed(&mut waiting, 2 * SECOND), (vec![6], false));
        let held = (0..PROBE_EVERY * 3).filter(|_| waiting.may_hold()).count();
        assert_eq!(held, 3);
        // It was a wrong conclusion after all.
        waiting.body_seen();
        assert!(waiting.may_hold());
    }

    #[test]
    fn a_request_that_is_over_is_not_freed() {
        let mut waiting = Waiting::default();
        waiting.hold(1, (), 0);
        waiting.done(1);
        assert_eq!(freed(&mut waiting, SECOND), (vec![], false));
    }
}
