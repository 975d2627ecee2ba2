//! What a request asks of the choice, in headers that the configuration allows.

use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;

use warmroute_routing::choose::Load;

/// Addresses in a subset, at most: a longer list is refused.
const MOST_ADDRESSES: usize = 1024;

/// What load counts for at most.
const MOST_SCALE: f64 = 10.0;

/// What one request wishes. The default wishes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// The only endpoints that may be chosen.
    pub subset: Option<Subset>,
    /// The session that it belongs to.
    pub session: Option<Session>,
    /// What load counts for.
    pub load_scale: Option<LoadScale>,
}

/// The only endpoints that may be chosen; none, if the list could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset(Vec<SocketAddr>);

/// A session, by a hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session(pub u64);

/// What load counts for against cached blocks: 1 as ever, more for requests that should wait less, less for those that may
/// wait. From 0 to 10.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadScale(f64);

// === impl Subset ===

impl Subset {
    /// Reads a list of `ip:port`, separated by commas. A list that is no such list has nothing in it: whoever set it did not
    /// mean any endpoint.
    pub fn parse(value: &[u8]) -> Self {
        let address = |item: &[u8]| std::str::from_utf8(item.trim_ascii()).ok()?.parse().ok();
        let addresses: Option<Vec<_>> =
            value.split(|byte| *byte == b',').take(MOST_ADDRESSES + 1).map(address).collect();
        Self(addresses.filter(|addresses| addresses.len() <= MOST_ADDRESSES).unwrap_or_default())
    }

    /// Whether an endpoint is in it.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.0.contains(&address)
    }
}

// === impl Session ===

impl Session {
    /// The session of this name; none, if it is empty.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let name = value.trim_ascii();
        (!name.is_empty()).then(|| {
            // The same in every VM: this hasher has no seed.
            let mut hasher = DefaultHasher::new();
            hasher.write(name);
            Self(hasher.finish())
        })
    }
}

// === impl LoadScale ===

impl LoadScale {
    /// Reads a decimal number; one that is out of bounds is taken to the nearer one. Anything else is none.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let number: f64 = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
        (!number.is_nan()).then(|| Self(number.clamp(0.0, MOST_SCALE)))
    }

    /// A worker's load as it counts for the request.
    #[allow(clippy::cast_sign_loss, reason = "neither factor is negative")]
    pub fn apply(self, load: Load) -> Load {
        let scaled = |amount: f64| (amount * self.0).round();
        Load {
            requests: scaled(f64::from(load.requests)) as u32,
            prefill_tokens: scaled(load.prefill_tokens as f64) as u64,
            blocks: scaled(load.blocks as f64) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subset_is_a_list_of_addresses_and_whatever_is_not_has_none() {
        let (one, two) = ("10.0.0.1:8000".parse().unwrap(), "[2001:db8::1]:8000".parse().unwrap());
        let both = Subset::parse(b" 10.0.0.1:8000,[2001:db8::1]:8000 ");
        assert!(both.has(one) && both.has(two));
        for bad in
            [&b""[..], b",", b"10.0.0.1", b"10.0.0.1:8000,", b"host:80", b"10.0.0.1:8000;x", b"\xFF\xFE"]
        {
            assert_eq!(Subset::parse(bad), Subset(vec![]), "{bad:?}");
        }
        let long = vec!["10.0.0.1:8000"; MOST_ADDRESSES + 1].join(",");
        assert!(!Subset::parse(long.as_bytes()).has(one));
    }

    #[test]
    fn load_counts_for_as_much_as_is_wished_within_bounds() {
        let load = Load { requests: 4, prefill_tokens: 1000, blocks: 7 };
        let requests = |value: &[u8]| LoadScale::parse(value).map(|scale| scale.apply(load).requests);
        let cases: [(&[u8], Option<u32>); 8] = [
            (b"1", Some(4)),
            (b" 2.5 ", Some(10)),
            (b"0", Some(0)),
            (b"-3", Some(0)),
            (b"1e9", Some(40)),
            (b"inf", Some(40)),
            (b"NaN", None),
            (b"urgent", None),
        ];
        for (value, expected) in cases {
            assert_eq!(requests(value), expected, "{value:?}");
        }
    }

    #[test]
    fn sessions_are_told_apart_by_name() {
        assert_eq!(Session::parse(b" a "), Session::parse(b"a"));
        assert_ne!(Session::parse(b"a"), Session::parse(b"b"));
        assert_eq!(Session::parse(b"  "), None);
    }
}
