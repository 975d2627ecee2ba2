//! A collector whose every answer the scenario decides, for what a real one does only by chance: to restart or to fall
//! silent in the middle of a full copy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use warmroute_routing::Tier;
use warmroute_routing::feed::{AnswerWriter, Cursor, Request};
use warmroute_routing::hash::{Namespace, SequenceHash, sequence_hashes};
use warmroute_routing::page::{Generation, Holder, PageBits, PageHeader, PageWriter, RUN_BLOCKS, Slot};
use warmroute_routing::pool::{Pool, Worker, WorkerState};

/// What the feed answers to a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// An answer's bytes, or anything else in their place.
    Bytes(Vec<u8>),
    /// Another status.
    Status(StatusCode),
    /// Nothing yet: the request is held for as long as it may wait, then answered with 503.
    Hold,
    /// An answer's bytes, once the request has been held for as long as it may wait: nothing has changed.
    Unchanged(Vec<u8>),
}

/// A server in a collector's place.
#[derive(Debug)]
pub struct ScriptedFeed {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

/// An index of one generation, in which each worker holds whole prompts.
#[derive(Debug, Clone)]
pub struct ScriptedIndex {
    pool: Pool,
    records: BTreeMap<(u32, SequenceHash), Vec<Holder>>,
}

// === impl ScriptedFeed ===

impl ScriptedFeed {
    /// Starts one on a free port. `script` is asked for the reply to each request.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(script: impl Fn(Request) -> Reply + Send + Sync + 'static) -> Result<Self> {
        Self::start_beside(axum::Router::new(), script).await
    }

    /// The same, beside other routes.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start_beside(
        others: axum::Router,
        script: impl Fn(Request) -> Reply + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port")?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, script) = (Arc::clone(&requests), Arc::new(script));
        let answer = async move |RawQuery(query): RawQuery| -> Response {
            let request = match Request::parse_query(&query.unwrap_or_default()) {
                Ok(request) => request,
                Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
            };
            log.lock().unwrap_or_else(PoisonError::into_inner).push(request);
            match script(request) {
                Reply::Bytes(bytes) => bytes.into_response(),
                Reply::Status(status) => status.into_response(),
                Reply::Hold => {
                    tokio::time::sleep(Duration::from_millis(request.wait_ms.into())).await;
                    StatusCode::SERVICE_UNAVAILABLE.into_response()
                }
                Reply::Unchanged(bytes) => {
                    tokio::time::sleep(Duration::from_millis(request.wait_ms.into())).await;
                    bytes.into_response()
                }
            }
        };
        let app = others.route("/v1/pools/{pool}/feed", axum::routing::get(answer));
        let task = tokio::spawn(async move {
            // Ends when the task is aborted.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, requests, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was asked so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ScriptedFeed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl ScriptedIndex ===

impl ScriptedIndex {
    /// Blocks of 16 tokens in the pages of `page_bits`, and nothing cached yet.
    ///
    /// # Panics
    /// On more page bits than the format has: the scenario is wrong.
    #[must_use]
    #[allow(clippy::expect_used, reason = "only a wrong scenario gets here")]
    pub fn new(generation: u64, page_bits: u8, workers: &[SocketAddr]) -> Self {
        let worker = |(slot, address): (u16, &SocketAddr)| {
            Some(Worker { slot: Slot::new(slot)?, address: *address, rank: 0, state: WorkerState::Up })
        };
        let pool = Pool {
            generation: Generation(generation),
            page_bits: PageBits::new(page_bits).expect("too many page bits"),
            block_size: 16,
            base_models: vec![],
            namespaced: false,
            workers: (0..).zip(workers).filter_map(worker).collect(),
        };
        Self { pool, records: BTreeMap::new() }
    }

    /// The index once this worker holds that prompt.
    #[must_use]
    pub fn with(mut self, worker: SocketAddr, prompt: &[u32]) -> Self {
        let slot = self.pool.workers.iter().find(|known| known.address == worker).map(|known| known.slot);
        let holder = slot.map(|slot| Holder { slot, tier: Tier::Gpu });
        let hashes = sequence_hashes(prompt, self.pool.block_size, Namespace::default());
        for (run, hash) in
            hashes.chunks(RUN_BLOCKS as usize).flat_map(|run| run.iter().map(move |hash| (run, hash)))
        {
            let page = run.first().map_or(0, |head| self.pool.page_bits.page_of(*head));
            let holders = self.records.entry((page, *hash)).or_default();
            holders.extend(holder);
            holders.sort_unstable();
        }
        self
    }

    /// The answer with the pages `from..to`: the last part of a full copy if `to` is the number of pages.
    #[must_use]
    pub fn pages(&self, from: u32, to: u32) -> Vec<u8> {
        let generation = self.pool.generation;
        let mut answer = AnswerWriter::new(&self.pool);
        let mut records = self.records.iter().skip_while(|((page, _), _)| *page < from).peekable();
        for number in from..to {
            let mut page = PageWriter::default();
            while let Some(((_, hash), holders)) = records.next_if(|((page, _), _)| *page == number) {
                page.record(*hash, holders.iter().copied());
            }
            answer.page(&page.finish(PageHeader { number, generation, version: 1 }));
        }
        answer.finish(Cursor { generation, position: 1, next_page: to })
    }

    /// The whole of it in one answer.
    #[must_use]
    pub fn all(&self) -> Vec<u8> {
        self.pages(0, self.page_count())
    }

    /// An answer to a request that [knows](Self::is_known_to) all of it.
    #[must_use]
    pub fn unchanged(&self) -> Vec<u8> {
        let (generation, next_page) = (self.pool.generation, self.page_count());
        AnswerWriter::new(&self.pool).finish(Cursor { generation, position: 1, next_page })
    }

    /// How many pages there are.
    #[must_use]
    pub fn page_count(&self) -> u32 {
        self.pool.page_bits.page_count()
    }

    /// Whether a request stands at the end of this generation, so that there is nothing new for it.
    #[must_use]
    pub fn is_known_to(&self, request: &Request) -> bool {
        request.cursor.generation == self.pool.generation && request.cursor.next_page == self.page_count()
    }
}
