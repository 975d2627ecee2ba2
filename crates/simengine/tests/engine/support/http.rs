//! An HTTP client of one engine.

use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use warmroute_simengine::Addresses;

use super::DEADLINE;

pub(crate) struct Client {
    base: String,
    http: reqwest::Client,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(addresses: &Addresses) -> Self {
        let http = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        Self { base: format!("http://{}", addresses.listen), http }
    }

    pub(crate) async fn send(&self, path: &str, body: &Value) -> Response {
        self.http.post(format!("{}{path}", self.base)).json(body).send().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let response = self.send(path, body).await;
        (response.status(), response.json().await.unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.http.get(format!("{}{path}", self.base)).send().await.unwrap()
    }

    /// A completion that must succeed.
    pub(crate) async fn complete(&self, body: &Value) -> Value {
        let (status, answer) = self.post("/v1/completions", body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    /// Completes a prompt with one token of output. Returns the cached tokens.
    pub(crate) async fn cached_tokens(&self, prompt: &[u32]) -> u64 {
        let answer = self.complete(&json!({ "prompt": prompt, "max_tokens": 1 })).await;
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    }

    /// A metric's value.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").await.text().await.unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("no {name} in\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}
