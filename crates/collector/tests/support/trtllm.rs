//! A fake trtllm-serve: `POST /kv_cache_events` drains what its ranks have told, once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How the next question is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// As it should be.
    Whole,
    /// The events are drained, and the answer breaks off.
    Cut,
    /// Not at all, and nothing is drained.
    Unavailable,
}

/// The engine.
pub struct FakeTrtLlm {
    pub authority: String,
    told: Told,
    ids: BTreeMap<u16, u64>,
    serving: JoinHandle<()>,
}

type Told = Arc<Mutex<(Vec<Value>, Answers)>>;

// === impl FakeTrtLlm ===

impl FakeTrtLlm {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let told = Told::new(Mutex::new((vec![], Answers::Whole)));
        let serving = tokio::spawn(serve(listener, Arc::clone(&told)));
        Self { authority, told, ids: BTreeMap::new(), serving }
    }

    /// The process dies: what was not asked for is gone, and numbers begin anew.
    pub async fn die(&mut self) {
        self.serving.abort();
        let _ = (&mut self.serving).await;
        self.told.lock().unwrap().0.clear();
        self.ids.clear();
    }

    pub async fn come_back(&mut self) {
        let listener = TcpListener::bind(&self.authority).await.unwrap();
        self.serving = tokio::spawn(serve(listener, Arc::clone(&self.told)));
    }

    pub fn answers(&self, answers: Answers) {
        self.told.lock().unwrap().1 = answers;
    }

    /// An entry of the collector's `workers`.
    pub fn worker(&self, address: &str, ranks: u16) -> String {
        let url = format!("http://{}/kv_cache_events", self.authority);
        format!("{{address: '{address}', events: '{url}', data_parallel_size: {ranks}}}")
    }

    /// Rank 0 tells something.
    pub fn tell(&mut self, data: &Value) {
        self.tell_of(0, 4096, data);
    }

    pub fn tell_of(&mut self, rank: u16, window: u64, data: &Value) {
        let id = self.ids.entry(rank).or_default();
        let event = json!({"event_id": *id, "data": data, "window_size": window, "attention_dp_rank": rank});
        *id += 1;
        self.told.lock().unwrap().0.push(event);
    }

    /// An event that the engine's own buffer had no room for.
    pub fn lose(&mut self) {
        *self.ids.entry(0).or_default() += 1;
    }

    /// Whether everything has been asked for.
    pub fn is_drained(&self) -> bool {
        self.told.lock().unwrap().0.is_empty()
    }
}

impl Drop for FakeTrtLlm {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, told: Told) {
    let app = Router::new().route("/kv_cache_events", post(drain)).with_state(told);
    axum::serve(listener, app).await.unwrap();
}

async fn drain(State(told): State<Told>) -> Response {
    let mut told = told.lock().unwrap();
    let answers = told.1;
    if answers == Answers::Unavailable {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let mut body = serde_json::to_string(&std::mem::take(&mut told.0)).unwrap();
    if answers == Answers::Cut {
        body.pop();
    }
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

pub fn created() -> Value {
    json!({"type": "created", "num_blocks_per_cache_level": [100, 100]})
}

/// A store of blocks of 2 tokens: block `n` has the tokens `[n, n]` and the hash `n + 1`.
pub fn stored(parent: Option<u64>, blocks: &[u64]) -> Value {
    let token = |id: &u64| json!({"type": "unique_token", "token_id": id, "token_extra_id": 0});
    let block = |block: &u64| {
        json!({"type": "stored_block", "block_hash": block + 1, "tokens": [token(block), token(block)],
            "cache_level": 0, "priority": 35, "mm_keys": [], "cache_salt": null})
    };
    let blocks: Vec<_> = blocks.iter().map(block).collect();
    json!({"type": "stored", "parent_hash": parent.map(|parent| parent + 1), "blocks": blocks})
}

pub fn removed(blocks: &[u64]) -> Value {
    let hashes: Vec<_> = blocks.iter().map(|block| block + 1).collect();
    json!({"type": "removed", "block_hashes": hashes})
}
