//! Engine events in, who holds how much of a prompt out.
//!
//! `state` has the index behind the contract's resource, `apply` the events in the contract's shapes, `snapshot` the bytes in
//! which an index is kept.

mod apply;
mod snapshot;
mod state;

use std::cell::RefCell;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(crate) use self::state::{Seated, State};
use crate::Component;
use crate::bindings::exports::warmroute::routing::prefix_index as wit;

/// The index of one pool, as the contract has it.
#[derive(Debug)]
pub struct Index(Rc<RefCell<State>>);

// === impl Index ===

impl Index {
    pub(crate) fn state(&self) -> Rc<RefCell<State>> {
        Rc::clone(&self.0)
    }
}

impl wit::Guest for Component {
    type Index = Index;
}

impl wit::GuestIndex for Index {
    fn open(options: wit::Options) -> Result<wit::Index, String> {
        Ok(wit::Index::new(Self(Rc::new(RefCell::new(State::open(options)?)))))
    }

    fn block_size(&self) -> u32 {
        self.0.borrow().block_size()
    }

    fn add_worker(&self, worker: wit::Worker) -> bool {
        self.0.borrow_mut().add_worker(worker)
    }

    fn remove_worker(&self, worker: wit::Worker) -> bool {
        self.0.borrow_mut().remove_worker(worker)
    }

    fn reset_worker(&self, worker: wit::Worker) -> bool {
        self.0.borrow_mut().reset_worker(worker)
    }

    fn workers(&self) -> Vec<wit::Worker> {
        self.0.borrow().seated().into_iter().map(|seated| seated.worker).collect()
    }

    fn apply(&self, worker: wit::Worker, events: Vec<wit::Event>, now_ms: u64) -> wit::Outcome {
        self.0.borrow_mut().apply(worker, events, now_ms)
    }

    fn matches(&self, prompt: wit::Prompt) -> Result<Vec<wit::Match>, String> {
        self.0.borrow_mut().matches(prompt)
    }

    fn stats(&self) -> wit::Stats {
        self.0.borrow().stats()
    }

    fn snapshot(&self) -> Result<Vec<u8>, wit::SnapshotError> {
        snapshot::save(&self.0.borrow())
    }

    fn snapshot_base64(&self) -> Result<String, wit::SnapshotError> {
        snapshot::save(&self.0.borrow()).map(|bytes| STANDARD.encode(bytes))
    }

    fn restore(snapshot: wit::Saved) -> Result<wit::Index, wit::SnapshotError> {
        let bytes = match snapshot {
            wit::Saved::Bytes(bytes) => bytes,
            wit::Saved::Base64(text) => STANDARD.decode(text).map_err(|_| wit::SnapshotError::Foreign)?,
        };
        Ok(wit::Index::new(Self(Rc::new(RefCell::new(snapshot::restore(&bytes)?)))))
    }
}
