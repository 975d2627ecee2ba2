//! Who a pool's workers are, by all that is said of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;

use tracing::warn;

use crate::config::{EventSource, WorkerConfig};

/// Ranks that a pool has at most.
pub(crate) const MAX_RANKS: usize = 4096;

/// Who a pool's workers are: the configuration says, a list elsewhere, and the engines themselves.
#[derive(Debug)]
pub(crate) struct Roll {
    pool: String,
    configured: Vec<WorkerConfig>,
    /// What the list elsewhere says; none until it has been read, where there is one.
    listed: Option<Vec<WorkerConfig>>,
    answers: BTreeMap<SocketAddr, (EventSource, Option<u32>)>,
    /// Workers that the log has told of as left out, since they left nothing out.
    complained: HashSet<SocketAddr>,
}

// === impl Roll ===

impl Roll {
    /// `listens`: there is a list elsewhere.
    pub(super) fn new(pool: String, configured: Vec<WorkerConfig>, listens: bool) -> Self {
        let listed = (!listens).then(Vec::new);
        Self { pool, configured, listed, answers: BTreeMap::new(), complained: HashSet::new() }
    }

    /// The configuration has changed.
    pub(super) fn configured(&mut self, workers: Vec<WorkerConfig>) {
        self.configured = workers;
    }

    /// What the list elsewhere says now.
    pub(crate) fn listed(&mut self, workers: Vec<WorkerConfig>) {
        self.listed = Some(workers);
    }

    /// What an engine says of where it publishes, and of its blocks.
    pub(crate) fn answered(&mut self, address: SocketAddr, source: EventSource, block_size: Option<u32>) {
        self.answers.insert(address, (source, block_size));
    }

    /// Whether it is known who there is.
    pub(super) fn is_complete(&self) -> bool {
        self.listed.is_some()
    }

    /// The workers whose endpoints nobody has written: the engines are to be asked.
    pub(super) fn unknown(&self) -> BTreeSet<SocketAddr> {
        self.named().filter(|worker| worker.source.is_none()).map(|worker| worker.address).collect()
    }

    /// The workers, each with what is known of it. Forgets what those have said that are gone.
    pub(super) fn workers(&mut self) -> Vec<WorkerConfig> {
        let unknown = self.unknown();
        self.answers.retain(|address, _| unknown.contains(address));
        let mut workers = Vec::new();
        let mut complained = HashSet::new();
        let mut owners = HashMap::new();
        let mut ranks = 0;
        for worker in self.named() {
            let mut worker = worker.clone();
            if worker.source.is_none()
                && let Some((source, block_size)) = self.answers.get(&worker.address)
            {
                (worker.source, worker.block_size) = (Some(source.clone()), *block_size);
            }
            let complaint = Self::taken(&worker, &mut owners).map(|(endpoint, owner)| {
                worker.source = None;
                format!("{endpoint} is {owner}'s already: the worker's events are left out")
            });
            ranks += usize::from(worker.ranks());
            let complaint = complaint.or_else(|| {
                (ranks > MAX_RANKS).then(|| format!("a pool has at most {MAX_RANKS} ranks: left out"))
            });
            if let Some(complaint) = complaint {
                if !self.complained.contains(&worker.address) {
                    warn!(pool = %self.pool, worker = %worker.address, "{complaint}");
                }
                complained.insert(worker.address);
            }
            if ranks > MAX_RANKS {
                ranks -= usize::from(worker.ranks());
                continue;
            }
            workers.push(worker);
        }
        self.complained = complained;
        workers
    }

    /// Everyone who is named, once: what the configuration says of an address is what counts.
    fn named(&self) -> impl Iterator<Item = &WorkerConfig> {
        let mut seen = HashSet::new();
        let listed = self.listed.iter().flatten();
        self.configured.iter().chain(listed).filter(move |worker| seen.insert(worker.address))
    }

    /// What of a worker's source belongs to another one already; else it is the worker's from now on.
    fn taken(
        worker: &WorkerConfig,
        owners: &mut HashMap<String, SocketAddr>,
    ) -> Option<(String, SocketAddr)> {
        let dialled: Vec<_> = worker.source.iter().flat_map(EventSource::dialled).collect();
        let taken = dialled.iter().find_map(|(_, endpoint)| Some((endpoint.clone(), *owners.get(endpoint)?)));
        if taken.is_none() {
            owners.extend(dialled.into_iter().map(|(_, endpoint)| (endpoint, worker.address)));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Events, Publisher};

    fn source(endpoint: &str) -> EventSource {
        let events = Events::Dial(endpoint.parse().unwrap());
        EventSource::Published(vec![Publisher { events, replay: None }])
    }

    fn worker(address: &str, endpoint: Option<&str>) -> WorkerConfig {
        WorkerConfig { address: address.parse().unwrap(), source: endpoint.map(source), block_size: None }
    }

    #[test]
    fn the_configuration_comes_first_and_answers_fill_what_is_not_written() {
        let written = worker("10.0.0.1:80", Some("tcp://a:1"));
        let mut roll = Roll::new("p".into(), vec![written.clone()], true);
        assert!(!roll.is_complete());
        let asked = worker("10.0.0.2:80", None);
        roll.listed(vec![worker("10.0.0.1:80", None), asked.clone()]);
        assert!(roll.is_complete());
        assert_eq!(roll.unknown(), BTreeSet::from([asked.address]));
        assert_eq!(roll.workers(), [written.clone(), asked.clone()]);
        roll.answered(asked.address, source("tcp://b:1"), Some(16));
        let known = WorkerConfig { block_size: Some(16), ..worker("10.0.0.2:80", Some("tcp://b:1")) };
        assert_eq!(roll.workers(), [written.clone(), known]);
        // Who comes back is asked anew.
        roll.listed(vec![]);
        assert_eq!(roll.workers(), std::slice::from_ref(&written));
        roll.listed(vec![asked.clone()]);
        assert_eq!(roll.workers(), [written, asked]);
    }

    #[test]
    fn an_endpoint_is_one_workers_and_a_pool_has_only_so_many_ranks() {
        let mut roll = Roll::new("p".into(), vec![worker("10.0.0.1:80", Some("tcp://a:1"))], true);
        roll.listed(vec![worker("10.0.0.2:80", Some("tcp://a:1"))]);
        assert_eq!(roll.workers()[1], worker("10.0.0.2:80", None));
        let many = (0..5000).map(|n| worker(&format!("10.1.{}.{}:80", n / 250, n % 250), None));
        roll.listed(many.collect());
        assert_eq!(roll.workers().len(), MAX_RANKS);
    }
}
