//! Workers by DNS: every address of a name, as of a headless service.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tracing::{debug, warn};
use warmroute_wire::Engine;

use crate::config::{Discover, SourceText};
use crate::pool::Pool;

/// Answers in a row from which an address has to be missing before it is gone: a server may leave some out of one.
const ANSWERS: u32 = 2;

/// A name, and the addresses that it has had lately.
pub(super) struct Names {
    resolve: Resolve,
    /// From how many of the last answers each address was missing.
    missing: BTreeMap<SocketAddr, u32>,
}

type Resolve = Box<dyn FnMut() -> Resolving + Send>;
type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

// === impl Names ===

impl Names {
    /// What the system's resolver says of a name.
    pub(super) fn system(host: String, port: u16) -> Self {
        let resolve = move || -> Resolving {
            let host = host.clone();
            Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
        };
        Self { resolve: Box::new(resolve), missing: BTreeMap::new() }
    }

    /// Looks once: who is there. A name that cannot be resolved says nothing: whoever was there is so still.
    ///
    /// A name with addresses of both families has two for each worker: those of IPv4 count.
    async fn look(&mut self) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = (self.resolve)().await?;
        if addresses.iter().any(SocketAddr::is_ipv4) {
            addresses.retain(SocketAddr::is_ipv4);
        }
        self.missing.values_mut().for_each(|missing| *missing += 1);
        for address in addresses {
            self.missing.insert(address, 0);
        }
        self.missing.retain(|_, missing| *missing < ANSWERS);
        Ok(self.missing.keys().copied().collect())
    }
}

/// Looks for ever.
pub(super) async fn watch(
    pool: Pool,
    engine: Engine,
    mut names: Names,
    source: Option<SourceText>,
    interval: Duration,
) {
    let mut failed = false;
    let mut known = None;
    loop {
        let looked = names.look().await;
        pool.metrics().discovery("dns", looked.is_ok());
        match looked {
            Ok(addresses) if known.as_ref() == Some(&addresses) => failed = false,
            Ok(addresses) => {
                failed = false;
                known = Some(addresses.clone());
                let workers = addresses.into_iter().filter_map(|address| {
                    Discover::worker(source.as_ref(), engine, address)
                        .inspect_err(|error| warn!(worker = %address, %error, "the worker is left out"))
                        .ok()
                });
                let workers = workers.collect();
                if pool.rearrange(|roll| roll.listed(workers)).await.is_err() {
                    return;
                }
            }
            Err(error) if !std::mem::replace(&mut failed, true) => {
                warn!(pool = pool.name(), %error, "cannot look for workers; those that are there stay");
            }
            Err(error) => debug!(pool = pool.name(), %error, "cannot look for workers"),
        }
        tokio::time::sleep(interval).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that has these answers, one after the other.
    fn answering(
        answers: impl IntoIterator<Item = io::Result<Vec<SocketAddr>>, IntoIter: Send + 'static>,
    ) -> Names {
        let mut answers = answers.into_iter();
        let resolve = move || -> Resolving {
            let answer = answers.next().unwrap();
            Box::pin(async { answer })
        };
        Names { resolve: Box::new(resolve), missing: BTreeMap::new() }
    }

    #[tokio::test]
    async fn of_two_addresses_of_a_worker_one_counts() {
        let [four, six]: [SocketAddr; 2] = ["10.0.0.1:80", "[fd00::1]:80"].map(|text| text.parse().unwrap());
        let mut names = answering([Ok(vec![six, four])]);
        assert_eq!(names.look().await.unwrap(), [four]);
        let mut only_six = answering([Ok(vec![six])]);
        assert_eq!(only_six.look().await.unwrap(), [six]);
    }

    #[tokio::test]
    async fn an_address_is_gone_once_two_answers_in_a_row_lack_it() {
        let [a, b, c]: [SocketAddr; 3] =
            ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"].map(|text| text.parse().unwrap());
        let answers = [Ok(vec![b, a, b]), Ok(vec![a, c]), Ok(vec![a, b]), Err(io::Error::other("no answer"))];
        let mut names = answering(answers.into_iter().chain([Ok(vec![a]), Ok(vec![]), Ok(vec![])]));
        assert_eq!(names.look().await.unwrap(), [a, b]);
        assert_eq!(names.look().await.unwrap(), [a, b, c]);
        assert_eq!(names.look().await.unwrap(), [a, b, c]);
        assert!(names.look().await.is_err());
        assert_eq!(names.look().await.unwrap(), [a, b]);
        assert_eq!(names.look().await.unwrap(), [a]);
        assert!(names.look().await.unwrap().is_empty());
    }
}
