//! A client's hold on its requests.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::Engine;
use crate::scheduler::RequestId;

/// New output of one of a ticket's prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    /// Which of the prompts, from 0.
    pub(crate) choice: usize,
    /// The tokens that are new.
    pub(crate) tokens: Vec<u32>,
    /// How many of the prompt's tokens were cached.
    pub(crate) cached_tokens: usize,
    /// Whether they are the last.
    pub(crate) finished: bool,
}

/// Running requests of one client. Dropping it cancels them: that is how a client that hangs up frees its blocks.
#[derive(Debug)]
pub(crate) struct Ticket {
    engine: Arc<Engine>,
    ids: Vec<RequestId>,
    updates: mpsc::Receiver<Update>,
}

// === impl Ticket ===

impl Ticket {
    pub(super) fn new(engine: Arc<Engine>, ids: Vec<RequestId>, updates: mpsc::Receiver<Update>) -> Self {
        Self { engine, ids, updates }
    }

    /// The next update; `None` after the last, or when the engine shuts down.
    pub(crate) async fn next(&mut self) -> Option<Update> {
        self.updates.recv().await
    }

    /// As [`Self::next`], for streams.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Update>> {
        self.updates.poll_recv(context)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.engine.cancel(&self.ids);
    }
}
