//! The keys of a pool's values.

use std::fmt::Write;

use super::sessions::PAGES as SESSION_PAGES;

/// The key of what all threads have in flight. A pool's name has no slash in it, so no pool's key is this.
pub const LOAD_KEY: &str = "warmroute/1/load";

/// The key of the proxy's random number, by which the collector knows it.
pub const PROXY_KEY: &str = "warmroute/1/proxy";

/// One of the two sets of page keys: one is read while the other is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySet {
    /// Keys with `/a/`.
    A,
    /// Keys with `/b/`.
    B,
}

/// The keys of one pool.
#[derive(Clone, Debug)]
pub struct PoolKeys {
    prefix: String,
    published: String,
    lease: String,
    recent: String,
    /// The numbered key that was asked for last.
    fleet: String,
    /// The page key that was asked for last.
    page: String,
}

// === impl KeySet ===

impl KeySet {
    /// The other set.
    pub fn other(self) -> Self {
        match self {
            KeySet::A => KeySet::B,
            KeySet::B => KeySet::A,
        }
    }

    fn letter(self) -> char {
        match self {
            KeySet::A => 'a',
            KeySet::B => 'b',
        }
    }
}

// === impl PoolKeys ===

impl PoolKeys {
    /// The keys of the pool of this name.
    pub fn new(pool: &str) -> Self {
        let prefix = format!("warmroute/1/{pool}/");
        Self {
            published: format!("{prefix}published"),
            lease: format!("{prefix}lease"),
            recent: format!("{prefix}recent"),
            fleet: format!("{prefix}fleet"),
            page: String::with_capacity(prefix.len() + 8),
            prefix,
        }
    }

    /// The key of the published pool.
    pub fn published(&self) -> &str {
        &self.published
    }

    /// The key of the publisher's lease.
    pub fn lease(&self) -> &str {
        &self.lease
    }

    /// The key of what was just routed.
    pub fn recent(&self) -> &str {
        &self.recent
    }

    /// The key of the part of the sessions in which the session of this hash is.
    pub fn sessions(&mut self, session: u64) -> &str {
        self.page.clear();
        self.page.push_str(&self.prefix);
        // Writing to a String cannot fail.
        let _ = write!(self.page, "s/{:02x}", session % SESSION_PAGES);
        &self.page
    }

    /// The key of what other proxies have in flight.
    pub fn fleet(&self) -> &str {
        &self.fleet
    }

    /// The key of a page.
    pub fn page(&mut self, set: KeySet, number: u32) -> &str {
        self.page.clear();
        self.page.push_str(&self.prefix);
        // Writing to a String cannot fail.
        let _ = write!(self.page, "{}/{number:06x}", set.letter());
        &self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_scheme_pool_set_and_page() {
        let mut keys = PoolKeys::new("llama");
        assert_eq!(keys.published(), "warmroute/1/llama/published");
        assert_eq!(keys.lease(), "warmroute/1/llama/lease");
        assert_eq!(keys.sessions(0x1_23), "warmroute/1/llama/s/23");
        assert_eq!(keys.recent(), "warmroute/1/llama/recent");
        assert_eq!(keys.fleet(), "warmroute/1/llama/fleet");
        assert_eq!(keys.page(KeySet::A, 0x1F), "warmroute/1/llama/a/00001f");
        assert_eq!(keys.page(KeySet::A.other(), 0xFF_FFFF), "warmroute/1/llama/b/ffffff");
    }
}
