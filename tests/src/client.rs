//! A client as an application would write it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

/// Nothing here takes this long unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends completions to one base URL.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

/// What came back for one prompt.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The answer's headers.
    pub headers: HeaderMap,
    /// What the engine counted; all 0 where it said nothing.
    pub usage: Usage,
    /// Until the first token, or the whole answer where it did not stream.
    pub ttft: Duration,
    /// The text generated.
    pub text: String,
    /// The token IDs generated, where the engine says them.
    pub token_ids: Vec<u32>,
}

/// What an engine says about its work on one prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens in the prompt.
    pub prompt_tokens: u64,
    /// How many of them were in its cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
}

// === impl Client ===

impl Client {
    /// Speaks HTTP/1.1.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn http1(base: String) -> Result<Self> {
        Self::new(base, reqwest::Client::builder().http1_only())
    }

    /// Speaks HTTP/2 from the first byte, without TLS.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn http2(base: String) -> Result<Self> {
        Self::new(base, reqwest::Client::builder().http2_prior_knowledge())
    }

    fn new(base: String, builder: reqwest::ClientBuilder) -> Result<Self> {
        Ok(Self { http: builder.no_proxy().timeout(TIMEOUT).build()?, base })
    }

    /// A request to `path`, for what has no method here.
    pub fn post(&self, path: &str) -> RequestBuilder {
        self.http.post(format!("{}{path}", self.base))
    }

    /// A GET request to `path`.
    pub fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base))
    }

    /// Completes a prompt of token IDs in one piece.
    ///
    /// # Errors
    /// When no complete answer comes; an error status is an answer.
    pub async fn complete(&self, prompt: &[u32], max_tokens: u32) -> Result<Answer> {
        self.send(completion(prompt, max_tokens), &[]).await
    }

    /// Completes a prompt of token IDs, streamed.
    ///
    /// # Errors
    /// When no complete answer comes; an error status is an answer.
    pub async fn stream(&self, prompt: &[u32], max_tokens: u32) -> Result<Answer> {
        let mut body = completion(prompt, max_tokens);
        if let Value::Object(fields) = &mut body {
            fields.insert("stream".to_owned(), json!(true));
            fields.insert("stream_options".to_owned(), json!({ "include_usage": true }));
        }
        self.send(body, &[]).await
    }

    /// Sends `body` to `/v1/completions` with `headers`.
    ///
    /// # Errors
    /// When no complete answer comes; an error status is an answer.
    pub async fn send(&self, body: Value, headers: &[(&str, &str)]) -> Result<Answer> {
        let mut request = self.post("/v1/completions").json(&body);
        for (name, value) in headers {
            request = request.header(HeaderName::try_from(*name)?, HeaderValue::try_from(*value)?);
        }
        let sent = Instant::now();
        let response = request.send().await.context("no answer")?;
        Answer::read(response, sent).await
    }
}

/// The body of a completion request.
#[must_use]
pub fn completion(prompt: &[u32], max_tokens: u32) -> Value {
    json!({ "model": "sim", "prompt": prompt, "max_tokens": max_tokens })
}

/// `count` token IDs that are the same for the same `seed`, and differ from the first on for another.
#[must_use]
pub fn tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut state = seed;
    // SplitMix64 (Steele, Lea, Flood 2014); 17 bits, as a vocabulary of 131,072.
    std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) & 0x1_ffff).unwrap_or_default()
    })
    .take(count)
    .collect()
}

// === impl Answer ===

impl Answer {
    /// The engine that answered, by its own name.
    #[must_use]
    pub fn engine(&self) -> Option<&str> {
        self.header("x-simengine")
    }

    /// What warmroute says that it decided.
    #[must_use]
    pub fn decision(&self) -> Option<&str> {
        self.header("x-warmroute-decision")
    }

    /// A header of the answer.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    async fn read(mut response: Response, sent: Instant) -> Result<Self> {
        let (status, headers) = (response.status(), response.headers().clone());
        let streamed =
            headers.get(CONTENT_TYPE).is_some_and(|is| is.as_bytes().starts_with(b"text/event-stream"));
        let mut answer = Self {
            status,
            headers,
            usage: Usage::default(),
            ttft: Duration::ZERO,
            text: String::new(),
            token_ids: Vec::new(),
        };
        if !streamed {
            let body = response.bytes().await.context("the answer broke off")?;
            answer.ttft = sent.elapsed();
            if status.is_success() {
                answer.add(serde_json::from_slice(&body).context("the answer is no completion")?);
            } else {
                answer.text = String::from_utf8_lossy(&body).into_owned();
            }
            return Ok(answer);
        }
        let mut events = Events::default();
        let mut first = None;
        while let Some(bytes) = response.chunk().await.context("the answer broke off")? {
            events.push(&bytes);
            while let Some(event) = events.next_data() {
                if event == "[DONE]" {
                    answer.ttft = first.context("the answer holds no token")?;
                    return Ok(answer);
                }
                answer.add(serde_json::from_str(&event).with_context(|| format!("not a chunk: {event}"))?);
                if first.is_none() && !answer.text.is_empty() {
                    first = Some(sent.elapsed());
                }
            }
        }
        bail!("the answer ended without [DONE]")
    }

    fn add(&mut self, chunk: Chunk) {
        for choice in chunk.choices {
            self.text.push_str(&choice.text);
            self.token_ids.extend(choice.token_ids.unwrap_or_default());
        }
        if let Some(usage) = chunk.usage {
            let cached = usage.prompt_tokens_details.and_then(|details| details.cached_tokens);
            self.usage = Usage {
                prompt_tokens: usage.prompt_tokens,
                cached_tokens: cached.unwrap_or_default(),
                completion_tokens: usage.completion_tokens,
            };
        }
    }
}

/// A completion or one chunk of it, as far as it is read here.
#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    text: String,
    token_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct WireUsage {
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

/// Cuts a stream of server-sent events at its blank lines.
#[derive(Default)]
struct Events(Vec<u8>);

// === impl Events ===

impl Events {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The data of the next whole event.
    fn next_data(&mut self) -> Option<String> {
        let end = self.0.windows(2).position(|pair| pair == b"\n\n")?;
        let event: Vec<u8> = self.0.drain(..end + 2).collect();
        let event = String::from_utf8_lossy(&event);
        Some(event.lines().filter_map(|line| line.strip_prefix("data: ")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Events, tokens};

    #[test]
    fn events_are_cut_wherever_the_stream_is() {
        let mut events = Events::default();
        let mut seen = Vec::new();
        for piece in ["data: a\n", "\ndata: b\n\nda", "ta: [DONE]\n\n"] {
            events.push(piece.as_bytes());
            seen.extend(std::iter::from_fn(|| events.next_data()));
        }
        assert_eq!(seen, ["a", "b", "[DONE]"]);
    }

    #[test]
    fn tokens_repeat_for_a_seed_and_differ_for_another() {
        assert_eq!(tokens(1, 40), tokens(1, 50)[..40]);
        assert_ne!(tokens(1, 16), tokens(2, 16));
    }
}
