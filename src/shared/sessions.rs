//! Which worker a session was last sent to.
//!
//! A pool's sessions lie in 256 values, by hash, so that a request reads and writes a small one. Each has room for
//! 64; where there is none left, the session that was used longest ago makes room.
//!
//! # Layout, version 1
//!
//! All numbers are little-endian.
//!
//! ```text
//! offset  size  field
//! 0       4     magic, the bytes "WRSS"
//! 4       2     format version, 1
//! 6       2     0
//! 8       ...   sessions: hash (8), used at (8, microseconds since 1970), IPv6 or IPv4-mapped address (16), port (2)
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const MAGIC: &[u8; 8] = b"WRSS\x01\0\0\0";
const SESSION_BYTES: usize = 34;

/// How many values a pool's sessions lie in.
pub(super) const PAGES: u64 = 256;

/// Sessions in one value, at most: with all values, 16,384 in a pool.
const MOST_SESSIONS: usize = 64;

/// The sessions of one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionPage(Vec<BoundSession>);

/// A session and its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundSession {
    /// The session's hash.
    pub session: u64,
    /// When it was last used, in microseconds since 1970.
    pub used_at_us: u64,
    /// The worker's endpoint.
    pub worker: SocketAddr,
}

// === impl SessionPage ===

impl SessionPage {
    /// The session's worker, if it has been used within its time.
    pub fn find(&self, session: u64, now_us: u64, ttl_us: u64) -> Option<BoundSession> {
        let found = self.0.iter().find(|bound| bound.session == session)?;
        (now_us.abs_diff(found.used_at_us) < ttl_us).then_some(*found)
    }

    /// Binds a session to a worker, in place of what it was bound to.
    pub fn bind(&mut self, bound: BoundSession, ttl_us: u64) {
        self.0.retain(|other| {
            other.session != bound.session && bound.used_at_us.abs_diff(other.used_at_us) < ttl_us
        });
        if self.0.len() >= MOST_SESSIONS
            && let Some((oldest, _)) = self.0.iter().enumerate().min_by_key(|(_, other)| other.used_at_us)
        {
            self.0.swap_remove(oldest);
        }
        self.0.push(bound);
    }

    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAGIC.len() + self.0.len() * SESSION_BYTES);
        out.extend_from_slice(MAGIC);
        for bound in &self.0 {
            let ip = match bound.worker.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            out.extend_from_slice(&bound.session.to_le_bytes());
            out.extend_from_slice(&bound.used_at_us.to_le_bytes());
            out.extend_from_slice(&ip.octets());
            out.extend_from_slice(&bound.worker.port().to_le_bytes());
        }
        out
    }

    /// Reads the value. What is foreign or of another layout is as nothing, and so is what is cut off.
    pub fn decode(bytes: &[u8]) -> Self {
        let sessions = bytes.strip_prefix(MAGIC).unwrap_or_default();
        Self(
            sessions.chunks_exact(SESSION_BYTES).filter_map(BoundSession::read).take(MOST_SESSIONS).collect(),
        )
    }
}

// === impl BoundSession ===

impl BoundSession {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (session, rest) = bytes.split_first_chunk()?;
        let (used_at_us, rest) = rest.split_first_chunk()?;
        let (ip, port) = rest.split_first_chunk::<16>()?;
        let ip = Ipv6Addr::from(*ip).to_canonical();
        Some(Self {
            session: u64::from_le_bytes(*session),
            used_at_us: u64::from_le_bytes(*used_at_us),
            worker: SocketAddr::new(ip, u16::from_le_bytes(*port.first_chunk()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: u64 = 1_000;

    fn bound(session: u64, used_at_us: u64) -> BoundSession {
        BoundSession { session, used_at_us, worker: ([10, 0, 0, 1], session as u16).into() }
    }

    #[test]
    fn a_session_is_found_until_its_time_is_over_and_bound_anew() {
        let mut page = SessionPage::default();
        page.bind(bound(1, 10), TTL);
        assert_eq!(page.find(1, 1_009, TTL), Some(bound(1, 10)));
        assert_eq!((page.find(1, 1_010, TTL), page.find(2, 10, TTL)), (None, None));
        let elsewhere = BoundSession { worker: ([10, 0, 0, 2], 1).into(), ..bound(1, 20) };
        page.bind(elsewhere, TTL);
        assert_eq!(page.find(1, 20, TTL), Some(elsewhere));
        assert_eq!(page.0.len(), 1);
    }

    #[test]
    fn a_full_page_forgets_the_session_that_was_used_longest_ago() {
        let mut page = SessionPage::default();
        (0..=MOST_SESSIONS as u64).for_each(|session| page.bind(bound(session, 100 + session), TTL));
        assert_eq!(page.0.len(), MOST_SESSIONS);
        assert!(page.find(0, 100, TTL).is_none() && page.find(1, 100, TTL).is_some());
        page.bind(bound(9_999, 5_000), TTL);
        assert_eq!(page.0.len(), 1, "those whose time is over make room");
    }

    #[test]
    fn reads_what_it_wrote_and_takes_what_is_foreign_or_cut_for_nothing() {
        let mut page = SessionPage::default();
        page.bind(bound(1, 10), TTL);
        page.bind(BoundSession { worker: "[2001:db8::1]:8000".parse().unwrap(), ..bound(2, 10) }, TTL);
        let bytes = page.encode();
        assert_eq!(SessionPage::decode(&bytes), page);
        for cut in 0..bytes.len() {
            assert!(SessionPage::decode(&bytes[..cut]).0.len() < 2);
        }
        assert_eq!(SessionPage::decode(b"WRLD"), SessionPage::default());
    }
}
