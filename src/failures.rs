//! Workers that have just failed this VM's requests.
//!
//! The `override_host` policy takes a host that it is told whatever its health, and the collector learns of a dead engine
//! later than a request that was refused by it. So a worker that refused is left out for a while: first for one second,
//! then, as long as it goes on refusing, ever longer up to a limit. One request that it serves ends that.

use std::collections::HashMap;
use std::net::SocketAddr;

/// How long a worker is left out after a first failure, in microseconds.
const FIRST_US: u64 = 1_000_000;

/// How long a worker is left out at most, in microseconds: it is tried again this often.
const LONGEST_US: u64 = 30_000_000;

/// A worker that has been left out for this long since its last failure starts anew, in microseconds.
const FORGET_US: u64 = 300_000_000;

/// The failing workers.
#[derive(Debug, Default)]
pub struct Failures(HashMap<SocketAddr, Failing>);

#[derive(Clone, Copy, Debug)]
struct Failing {
    in_a_row: u32,
    until_us: u64,
}

// === impl Failures ===

impl Failures {
    /// A worker that was named has not served: it refused, was reset, or answered 503.
    pub fn failed(&mut self, address: SocketAddr, now_us: u64) {
        self.0.retain(|_, failing| now_us.saturating_sub(failing.until_us) < FORGET_US);
        let failing = self.0.entry(address).or_insert(Failing { in_a_row: 0, until_us: 0 });
        // Requests that were under way together fail together: they are one failure.
        if failing.until_us <= now_us {
            let pause_us = FIRST_US.saturating_mul(1 << failing.in_a_row.min(20)).min(LONGEST_US);
            failing.in_a_row = failing.in_a_row.saturating_add(1);
            failing.until_us = now_us.saturating_add(pause_us);
        }
    }

    /// A worker has served.
    pub fn served(&mut self, address: SocketAddr) {
        if !self.0.is_empty() {
            self.0.remove(&address);
        }
    }

    /// Whether a worker is left out now.
    pub fn leaves_out(&self, address: SocketAddr, now_us: u64) -> bool {
        // Almost always there is none.
        !self.0.is_empty() && self.0.get(&address).is_some_and(|failing| failing.until_us > now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    /// The second in which a worker is taken again, if every attempt fails.
    fn attempts(until_s: u64) -> Vec<u64> {
        let mut failures = Failures::default();
        let mut attempts = vec![];
        for now_s in 0..until_s {
            if !failures.leaves_out(address(1), now_s * SECOND) {
                attempts.push(now_s);
                failures.failed(address(1), now_s * SECOND);
            }
        }
        attempts
    }

    #[test]
    fn a_worker_that_goes_on_failing_is_left_out_ever_longer_up_to_a_limit() {
        assert_eq!(attempts(125), [0, 1, 3, 7, 15, 31, 61, 91, 121]);
    }

    #[test]
    fn failures_at_the_same_time_are_one() {
        let mut failures = Failures::default();
        (0..50).for_each(|_| failures.failed(address(1), SECOND));
        assert!(failures.leaves_out(address(1), SECOND));
        assert!(!failures.leaves_out(address(1), 2 * SECOND));
        assert!(!failures.leaves_out(address(2), SECOND));
    }

    #[test]
    fn one_served_request_ends_it() {
        let mut failures = Failures::default();
        failures.failed(address(1), 0);
        failures.failed(address(1), SECOND);
        failures.served(address(1));
        assert!(!failures.leaves_out(address(1), SECOND));
        failures.failed(address(1), 2 * SECOND);
        assert!(!failures.leaves_out(address(1), 3 * SECOND));
    }

    #[test]
    fn workers_that_are_long_gone_take_no_memory() {
        let mut failures = Failures::default();
        (0..1000).for_each(|port| failures.failed(address(port), 0));
        failures.failed(address(1), 400 * SECOND);
        assert_eq!(failures.0.len(), 1);
    }
}
