//! URLs that are polled for events.

use std::fmt;
use std::str::FromStr;

use super::endpoint;

/// `http://host[:port]/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PollUrl {
    authority: String,
    path: String,
}

/// A text that is no [`PollUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write it as `http://host:port/kv_cache_events`, with the host that the engine is reached at (no `*`)"
)]
pub struct PollUrlError;

// === impl PollUrl ===

impl PollUrl {
    const SCHEME: &'static str = "http://";

    /// Whether a text means to be one.
    pub(super) fn is_meant_by(text: &str) -> bool {
        text.starts_with(Self::SCHEME) || text.starts_with("https://")
    }

    /// `host:port`, an IPv6 address in brackets.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The path, with its leading `/`.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for PollUrl {
    type Err = PollUrlError;

    fn from_str(text: &str) -> Result<Self, PollUrlError> {
        let rest = text.strip_prefix(Self::SCHEME).ok_or(PollUrlError)?;
        let slash = rest.find('/').ok_or(PollUrlError)?;
        let (authority, path) = rest.split_at_checked(slash).ok_or(PollUrlError)?;
        let is_path = path.len() > 1 && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let authority = match endpoint::host_and_port(authority) {
            Some(_) => authority.to_owned(),
            None => endpoint::is_host(authority).then(|| format!("{authority}:80")).ok_or(PollUrlError)?,
        };
        if is_path { Ok(Self { authority, path: path.to_owned() }) } else { Err(PollUrlError) }
    }
}

impl fmt::Display for PollUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", Self::SCHEME, self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_that_can_be_dialled_and_a_path() {
        for good in
            ["http://10.0.0.1:8000/kv_cache_events", "http://[::1]:8000/a/b?c=d", "http://trt-0.trt:1/x"]
        {
            assert_eq!(good.parse::<PollUrl>().unwrap().to_string(), good);
        }
        assert_eq!("http://trt/x".parse::<PollUrl>().unwrap().authority(), "trt:80");
        for bad in [
            "https://a:1/x",
            "http://a:1",
            "http://a:1/",
            "http://*:1/x",
            "http://a:0/x",
            "http://::1/x",
            "http:///x",
            "http://u@h:1/x",
            "http://a:1/x y",
            "tcp://a:1/x",
        ] {
            assert_eq!(bad.parse::<PollUrl>(), Err(PollUrlError), "{bad}");
        }
    }
}
