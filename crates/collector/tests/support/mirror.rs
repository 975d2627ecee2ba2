//! A publisher without an Envoy: follows the feed by its cursor and looks prompts up in what it has.

use std::collections::HashMap;

use warmroute_routing::feed::{Answer, Cursor, Request};
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::lookup::{IndexShape, PageStore, RefineAll, Scope, lookup};
use warmroute_routing::page::{Page, Slot};
use warmroute_routing::pool::{Pool, WorkerState};

use super::Collector;

/// A copy of a pool's index.
pub struct Mirror {
    url: String,
    client: reqwest::Client,
    pub cursor: Cursor,
    pub pool: Option<Pool>,
    pages: HashMap<u32, Vec<u8>>,
    pub max_bytes: u32,
}

struct Pages<'a>(&'a HashMap<u32, Vec<u8>>);

// === impl Mirror ===

impl Mirror {
    pub fn new(collector: &Collector) -> Self {
        Self {
            url: collector.url.clone(),
            client: reqwest::Client::new(),
            cursor: Cursor::START,
            pool: None,
            pages: HashMap::new(),
            max_bytes: 1 << 20,
        }
    }

    /// Takes one answer; says how many pages were in it, or the status if it was none.
    pub async fn poll(&mut self, wait_ms: u32) -> Result<usize, u16> {
        let request = Request { cursor: self.cursor, wait_ms, max_bytes: self.max_bytes };
        let response =
            self.client.get(format!("{}{}", self.url, request.path("llama"))).send().await.unwrap();
        if response.status() != 200 {
            return Err(response.status().as_u16());
        }
        let bytes = response.bytes().await.unwrap();
        let answer = Answer::decode(&bytes).unwrap();
        if answer.cursor.generation != self.cursor.generation {
            self.pages.clear();
        }
        for (page, bytes) in &answer.pages {
            self.pages.insert(page.header().number, bytes.to_vec());
        }
        self.cursor = answer.cursor;
        let count = answer.pages.len();
        self.pool = Some(answer.pool);
        Ok(count)
    }

    /// Polls until the copy is complete and nothing is new.
    pub async fn catch_up(&mut self) {
        loop {
            let before = self.cursor;
            match self.poll(0).await {
                Ok(pages) if pages == 0 && self.cursor == before => return,
                Ok(_) => {}
                Err(status) => panic!("feed answers {status}"),
            }
        }
    }

    /// How many blocks of a prompt each live worker has, by address and rank.
    pub fn depths(&self, tokens: &[u32]) -> HashMap<(String, u32), u32> {
        let Some(pool) = &self.pool else { return HashMap::new() };
        let hashes = sequence_hashes(tokens, pool.block_size, Namespace::default());
        let shape = IndexShape { generation: pool.generation, page_bits: pool.page_bits };
        let live = |slot: Slot| pool.worker(slot).is_some();
        let scope = Scope { store: &mut Pages(&self.pages), shape, live, max_reads: 1000 };
        let found = lookup(scope, &hashes, &mut RefineAll);
        let workers = found.workers.iter().map(|found| {
            let worker = pool.worker(found.slot).unwrap();
            ((worker.address.to_string(), worker.rank), found.at_least.any())
        });
        workers.collect()
    }

    /// Catches up; then the depth of one worker.
    pub async fn depth(&mut self, address: &str, tokens: &[u32]) -> u32 {
        self.catch_up().await;
        self.depths(tokens).get(&(address.to_owned(), 0)).copied().unwrap_or(0)
    }

    /// The state of a worker.
    pub fn state(&self, address: &str) -> Option<WorkerState> {
        let workers = &self.pool.as_ref()?.workers;
        workers.iter().find(|worker| worker.address.to_string() == address).map(|worker| worker.state)
    }

    /// Every block with its live holders, in order.
    pub fn content(&self) -> Vec<(u64, Vec<(u16, u8)>)> {
        let pool = self.pool.as_ref().unwrap();
        let mut content = vec![];
        for bytes in self.pages.values() {
            for (hash, record) in Page::parse(bytes).unwrap().records() {
                let live = record.holders.iter().filter(|holder| pool.worker(holder.slot).is_some());
                let holders: Vec<_> = live.map(|holder| (holder.slot.number(), holder.tier as u8)).collect();
                if !holders.is_empty() {
                    content.push((hash.0, holders));
                }
            }
        }
        content.sort();
        content
    }
}

impl PageStore for Pages<'_> {
    type Bytes = Vec<u8>;

    fn read(&mut self, page: u32) -> Option<Vec<u8>> {
        self.0.get(&page).cloned()
    }
}
