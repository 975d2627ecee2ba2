//! The core itself.

use std::collections::BTreeMap;

use warmroute_index::event::Event;
use warmroute_index::{Index, Options, WorkerId, WorkerIdentity};
use warmroute_routing::Tier;
use warmroute_routing::choose::{Candidate, Limits, Load, Prompt, Question, Rule, Selection, select};
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::lookup::{IndexShape, PageStore, RefineAll, Scope, lookup};
use warmroute_routing::page::{Generation, PageBits, Slot};

use crate::steps::{BLOCK_SIZE, WORKERS};

/// The core itself.
pub(crate) struct Native {
    index: Index,
    workers: BTreeMap<u64, WorkerId>,
    pub(crate) loads: BTreeMap<u64, Load>,
    rule: Rule,
    selections: u64,
}

struct Pages<'a>(&'a mut Index);

impl PageStore for Pages<'_> {
    type Bytes = Vec<u8>;

    fn read(&mut self, page: u32) -> Option<Vec<u8>> {
        Some(self.0.page(page))
    }
}

impl Native {
    pub(crate) fn new(rule: Rule) -> Self {
        let options =
            Options { block_size: BLOCK_SIZE, page_bits: PageBits::new(0).unwrap(), max_orphans: 100 };
        let mut index = Index::new(options, Generation(1));
        let mut add =
            |id: u64| index.add_worker(WorkerIdentity { address: id.to_string(), rank: 0 }).unwrap();
        let workers = (1..=WORKERS).map(|id| (id, add(id))).collect();
        Self { index, workers, loads: BTreeMap::new(), rule, selections: 0 }
    }

    pub(crate) fn apply(&mut self, worker: u64, event: &Event) {
        self.index.apply(self.workers[&worker], event).unwrap();
        // As the component does: a generation numbers the slots anew, and among equals their order decides.
        self.index.purge(4_096);
        let more = self.index.wants_pages();
        if more.is_some() || self.index.needs_generation() {
            let next = Generation(self.index.generation().0 + 1);
            self.index.begin_generation(next, more.unwrap_or(self.index.page_bits()));
        }
    }

    pub(crate) fn select(&mut self, tokens: &[u32]) -> (Selection, Vec<(Slot, u64)>) {
        let mut slots = self.slots();
        slots.sort_unstable();
        let load = |id: &u64| self.loads.get(id).copied().unwrap_or_default();
        let candidates: Vec<_> =
            slots.iter().map(|(slot, id)| Candidate { slot: *slot, load: load(id) }).collect();
        self.selections += 1;
        let hashes = sequence_hashes(tokens, BLOCK_SIZE, Namespace::default());
        let question = Question {
            prompt: Prompt {
                blocks: hashes.len() as u32,
                tokens: tokens.len() as u64,
                block_size: BLOCK_SIZE,
            },
            candidates: &candidates,
            policy: &self.rule,
            limits: Limits { max_reads: u32::MAX, choices: 3 },
            tie: self.selections,
        };
        let shape = self.shape();
        (select(&mut Pages(&mut self.index), shape, &hashes, &question), slots)
    }

    /// Blocks of a prompt in each tier at each worker that holds some, in the order in which the workers were added.
    pub(crate) fn matches(&mut self, tokens: &[u32]) -> Vec<(u64, [u32; 4])> {
        let hashes = sequence_hashes(tokens, BLOCK_SIZE, Namespace::default());
        let (slots, shape) = (self.slots(), self.shape());
        let live = |slot| slots.iter().any(|(known, _)| *known == slot);
        let scope = Scope { store: &mut Pages(&mut self.index), shape, live, max_reads: u32::MAX };
        let found = lookup(scope, &hashes, &mut RefineAll).workers;
        let depths = |slot| {
            let found = found.iter().find(|found| found.slot == slot)?;
            Some(Tier::ALL.map(|tier| found.at_least.within(tier)))
        };
        slots.iter().filter_map(|(slot, id)| Some((*id, depths(*slot)?))).collect()
    }

    fn slots(&self) -> Vec<(Slot, u64)> {
        let id = |identity: &WorkerIdentity| identity.address.parse().unwrap();
        self.index.workers().map(|(_, who, slot)| (slot, id(who))).collect()
    }

    fn shape(&self) -> IndexShape {
        IndexShape { generation: self.index.generation(), page_bits: self.index.page_bits() }
    }
}
