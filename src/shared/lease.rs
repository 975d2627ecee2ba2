//! The lease: of all that could publish a pool in this proxy, one does.
//!
//! The value says who holds it and until when. It is taken and renewed by compare-and-swap, in `on_tick` only: the canary
//! that Envoy runs for each new configuration never ticks, and so never takes it. A holder that stops renewing, because
//! its VM died or its thread stands still, loses it to the next that looks.
//!
//! A senior claim takes a running lease over: the bootstrap singleton before a worker's VM, and a newer configuration
//! before an older one, whose root context ticks on until it is drained.
//!
//! # Layout, version 1
//!
//! ```text
//! offset  size  field
//! 0       4     magic, the bytes "WRLS"
//! 4       2     format version, 1
//! 6       1     role: 0 = worker, 1 = singleton
//! 7       1     zero
//! 8       8     owner: a random number
//! 16      8     when the owner was configured, in microseconds since 1970
//! 24      8     when the lease ends, in microseconds since 1970
//! ```

use crate::host::{Host, WriteIf};

const FORMAT_VERSION: u16 = 1;
const MAGIC: &[u8; 4] = b"WRLS";
const LEN: usize = 32;

/// The worker threads load one configuration within a moment of each other; only what is newer by more than this is a
/// newer configuration. Else the lease would pass through every thread at a start.
const SAME_CONFIGURATION_US: u64 = 1_000_000;

/// Whose claim goes first: a singleton's, then that of the newer configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seniority {
    /// Whether the claim is a bootstrap singleton's.
    pub singleton: bool,
    /// When the configuration was loaded, in microseconds since 1970.
    pub configured_at_us: u64,
}

/// Somebody who wants to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// A random number: who it is.
    pub owner: u64,
    /// Whose claim goes first.
    pub seniority: Seniority,
    /// How long a lease lasts that is not renewed, in microseconds.
    pub lease_us: u64,
}

/// A lease as it stands in shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub owner: u64,
    /// By which claim.
    pub seniority: Seniority,
    /// Until when, in microseconds since 1970.
    pub ends_at_us: u64,
}

// === impl Seniority ===

impl Seniority {
    fn goes_before(self, other: Self) -> bool {
        match (self.singleton, other.singleton) {
            (true, false) => true,
            (false, true) => false,
            _ => self.configured_at_us > other.configured_at_us.saturating_add(SAME_CONFIGURATION_US),
        }
    }
}

// === impl Claim ===

impl Claim {
    /// Takes the lease, or renews it when half of it is over. Returns it if this claim holds it now.
    pub fn hold(&self, host: &impl Host, key: &str, now_us: u64) -> Option<Lease> {
        let mine = Lease {
            owner: self.owner,
            seniority: self.seniority,
            ends_at_us: now_us.saturating_add(self.lease_us),
        };
        let found = host.shared(key);
        let condition = found.as_ref().map_or(WriteIf::Absent, |value| WriteIf::Unchanged(value.cas));
        // What cannot be read is nobody's.
        if let Some(held) = found.and_then(|value| Lease::decode(&value.bytes)) {
            let running =
                held.ends_at_us > now_us && held.ends_at_us <= now_us.saturating_add(self.longest_lease_us());
            if held.owner == self.owner && running && held.ends_at_us - now_us > self.lease_us / 2 {
                return Some(held);
            }
            if held.owner != self.owner && running && !self.seniority.goes_before(held.seniority) {
                return None;
            }
        }
        host.set_shared(key, &mine.encode(), condition).ok().map(|()| mine)
    }

    /// A lease that ends later than anyone could have asked for was written before the clock went back.
    fn longest_lease_us(&self) -> u64 {
        self.lease_us.saturating_mul(2).max(120_000_000)
    }

    /// Whether the lease is still this claim's.
    pub fn holds(&self, host: &impl Host, key: &str, now_us: u64) -> bool {
        let found = host.shared(key).and_then(|value| Lease::decode(&value.bytes));
        found.is_some_and(|lease| lease.owner == self.owner && lease.ends_at_us > now_us)
    }
}

// === impl Lease ===

impl Lease {
    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.seniority.singleton), 0]);
        for number in [self.owner, self.seniority.configured_at_us, self.ends_at_us] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }

    /// Reads the value; none if it is cut, foreign or of another layout.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, numbers) = bytes.split_first_chunk::<8>()?;
        let [m0, m1, m2, m3, v0, v1, role, _] = *head;
        let (numbers, rest) = numbers.as_chunks::<8>();
        let [owner, configured_at, ends_at] = numbers else { return None };
        if [m0, m1, m2, m3] != *MAGIC || u16::from_le_bytes([v0, v1]) != FORMAT_VERSION || !rest.is_empty() {
            return None;
        }
        let configured_at_us = u64::from_le_bytes(*configured_at);
        let seniority = Seniority { singleton: role == 1, configured_at_us };
        Some(Self { owner: u64::from_le_bytes(*owner), seniority, ends_at_us: u64::from_le_bytes(*ends_at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    const KEY: &str = "lease";
    const SECOND: u64 = 1_000_000;

    fn claim(owner: u64, singleton: bool, configured_at_s: u64) -> Claim {
        let seniority = Seniority { singleton, configured_at_us: configured_at_s * SECOND };
        Claim { owner, seniority, lease_us: 3 * SECOND }
    }

    fn holds(claim: &Claim, host: &FakeHost, at_s: u64) -> bool {
        claim.hold(host, KEY, at_s * SECOND).is_some()
    }

    #[test]
    fn one_of_several_holds_it_and_keeps_it() {
        let host = FakeHost::default();
        let (a, b) = (claim(1, false, 0), claim(2, false, 0));
        for at in 10..20 {
            assert!(holds(&a, &host, at), "at {at}");
            assert!(!holds(&b, &host, at), "at {at}");
        }
    }

    #[test]
    fn a_holder_that_stops_renewing_is_replaced() {
        let host = FakeHost::default();
        let (a, b) = (claim(1, false, 0), claim(2, false, 0));
        assert!(holds(&a, &host, 10));
        assert!(!holds(&b, &host, 12));
        assert!(holds(&b, &host, 13));
        assert!(!a.holds(&host, KEY, 13 * SECOND));
        assert!(!holds(&a, &host, 14));
    }

    #[test]
    fn a_singleton_goes_before_a_worker_and_is_not_put_aside_by_a_newer_one() {
        let host = FakeHost::default();
        let (singleton, worker) = (claim(1, true, 0), claim(2, false, 100));
        assert!(holds(&worker, &host, 110));
        assert!(holds(&singleton, &host, 110));
        assert!(!holds(&worker, &host, 111));
    }

    #[test]
    fn a_newer_configuration_takes_over_but_a_thread_of_the_same_does_not() {
        let host = FakeHost::default();
        assert!(holds(&claim(1, false, 100), &host, 110));
        assert!(!holds(&claim(2, false, 101), &host, 110));
        assert!(holds(&claim(3, false, 105), &host, 110));
        assert!(!holds(&claim(1, false, 100), &host, 111));
    }

    #[test]
    fn rubbish_and_a_lease_from_beyond_a_clock_step_are_nobodys() {
        let host = FakeHost::default();
        host.put(KEY, b"rubbish");
        assert!(holds(&claim(1, false, 0), &host, 1_000_000));
        // The clock goes back by days.
        assert!(holds(&claim(2, false, 0), &host, 10));
    }

    #[test]
    fn a_lost_race_is_not_held() {
        let host = FakeHost::default();
        host.lose_next_write();
        assert!(!holds(&claim(1, false, 0), &host, 10));
    }
}
