//! The topic of a message, where it tells the worker.

use std::net::{IpAddr, SocketAddr};

/// The worker of a topic `kv@ip:port@model`, llm-d's convention. An IPv6 address may lack its brackets.
pub fn worker_of_topic(topic: &[u8]) -> Option<SocketAddr> {
    let (worker, _) = std::str::from_utf8(topic).ok()?.strip_prefix("kv@")?.split_once('@')?;
    worker.parse().ok().or_else(|| {
        let (ip, port) = worker.rsplit_once(':')?;
        Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_is_a_worker() {
        let worker = |topic: &str| worker_of_topic(topic.as_bytes()).map(|worker| worker.to_string());
        assert_eq!(worker("kv@10.0.0.1:8000@org/model@v2").as_deref(), Some("10.0.0.1:8000"));
        for ipv6 in ["kv@[2001:db8::1]:8000@m", "kv@2001:db8::1:8000@m"] {
            assert_eq!(worker(ipv6).as_deref(), Some("[2001:db8::1]:8000"));
        }
        for other in ["", "kv", "kv@", "kv@pod-7@m", "kv@10.0.0.1@m", "kv@10.0.0.1:8000", "10.0.0.1:8000@m"] {
            assert_eq!(worker(other), None, "{other}");
        }
        assert_eq!(worker_of_topic(&[0xFF]), None);
    }
}
