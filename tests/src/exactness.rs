//! Whether what warmroute says of a prompt is what the engine then reports: one request at a time.
//!
//! A request is *asked* in four steps:
//!
//! 1. The collector explains how many blocks of the prompt each worker holds.
//! 2. The filter is asked for its decision about the prompt, without anything being computed, until the pages that it reads
//!    say what the collector says.
//! 3. The request is sent. The engine reports how many tokens of the prompt it had cached.
//! 4. The engines' events are waited for: until the blocks that were computed are known, and nothing comes any more.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::collector::Question;
use crate::{Answer, Client, Collector, wait};

/// How long the filter may take to have what the collector has.
const AGREE_DEADLINE: Duration = Duration::from_secs(5);
/// How long an engine's events may take.
const SETTLE_DEADLINE: Duration = Duration::from_secs(10);
/// No engine waits this long in the middle of what it has to tell of one step.
const QUIET_SECONDS: f64 = 0.1;

/// One request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The prompt and its namespace.
    pub question: Question,
    /// How many tokens are to be generated.
    pub max_tokens: u32,
    /// Further fields of the body.
    pub fields: serde_json::Map<String, Value>,
}

/// What was said before a request, and what was so.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Who served it; unknown where the proxy chose.
    pub worker: Option<SocketAddr>,
    /// Tokens of the prompt that the engine should find in its cache.
    pub predicted: u64,
    /// Tokens of the prompt that it says it found.
    pub reported: u64,
    /// What the filter decided about the request itself, whose prompt it may not have read to its end.
    pub decision: String,
    /// The answer.
    pub answer: Answer,
}

/// Asks requests of a stack that serves nobody else.
#[derive(Debug)]
pub struct Examiner<'a> {
    collector: &'a Collector,
    client: Client,
    /// The model's name, where a request names no adapter.
    model: &'a str,
    block_size: u64,
}

/// A decision, as the header tells it.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    worker: Option<SocketAddr>,
    cached_blocks: u64,
}

// === impl Examiner ===

impl<'a> Examiner<'a> {
    /// Asks through the Envoy at `url`.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn new(url: String, collector: &'a Collector, model: &'a str, block_size: u32) -> Result<Self> {
        Ok(Self { collector, client: Client::http1(url)?, model, block_size: block_size.into() })
    }

    /// Asks one request.
    ///
    /// # Errors
    /// When it is not served, or collector, filter and events do not come to rest.
    pub async fn ask(&self, request: &Request) -> Result<Verdict> {
        let held = self.agree(&request.question).await?;
        let answer = self.client.send(self.body(request), &[]).await?;
        ensure!(answer.status.is_success(), "{}: {}", answer.status, answer.text);
        let decision = answer.decision().context("no decision")?.to_owned();
        let worker = Told::parse(&decision)?.worker;
        let blocks =
            worker.map_or_else(|| deepest(&held), |worker| held.get(&worker).copied().unwrap_or_default());
        let reported = answer.usage.cached_tokens;
        let predicted = self.cached_tokens(blocks, &request.question);
        self.settle(&request.question, worker).await?;
        Ok(Verdict { worker, predicted, reported, decision, answer })
    }

    /// Asks one worker itself, whoever would have been chosen, without generating more than a token.
    ///
    /// What the filter says of the worker that it would choose must be what the collector knows of that one. It need not be
    /// the one with the most: one that has just failed is left out for a while.
    ///
    /// # Errors
    /// As [`Examiner::ask`], and where the worker reports otherwise than predicted.
    pub async fn ask_worker(&self, worker: SocketAddr, question: &Question) -> Result<()> {
        let held = wait::until_ok(AGREE_DEADLINE, "filter and collector to agree", async || {
            let held = self.collector.explain(question).await?;
            let decision = self.decision_on(question).await?;
            let told = Told::parse(&decision)?;
            let known = told.worker.and_then(|worker| held.get(&worker)).copied().unwrap_or_default();
            ensure!(told.cached_blocks == known, "{decision}, and {held:?}");
            Ok(held)
        });
        let blocks = held.await?.get(&worker).copied().with_context(|| format!("{worker} is no worker"))?;
        let request = Request { question: question.clone(), max_tokens: 1, ..Request::default() };
        let direct = Client::http1(format!("http://{worker}"))?;
        let answer = direct.send(self.body(&request), &[]).await?;
        ensure!(answer.status.is_success(), "{}: {}", answer.status, answer.text);
        let (predicted, reported) = (self.cached_tokens(blocks, question), answer.usage.cached_tokens);
        ensure!(
            predicted == reported,
            "{worker} has {reported} tokens of {} where {predicted} were predicted",
            question.tokens.len()
        );
        self.settle(question, Some(worker)).await
    }

    /// Waits until nothing comes of any engine.
    ///
    /// # Errors
    /// When it does not within ten seconds.
    pub async fn quiet(&self) -> Result<()> {
        wait::until_ok(SETTLE_DEADLINE, "quiet engines", async || self.is_quiet().await).await
    }

    /// Waits until the filter sees what the collector knows of a prompt, and tells how many blocks each worker holds.
    ///
    /// # Errors
    /// When they do not agree in time.
    pub async fn agree(&self, question: &Question) -> Result<BTreeMap<SocketAddr, u64>> {
        wait::until_ok(AGREE_DEADLINE, "filter and collector to agree", async || {
            let held = self.collector.explain(question).await?;
            let decision = self.decision_on(question).await?;
            let told = Told::parse(&decision)?;
            let deepest = deepest(&held);
            let known = told.worker.and_then(|worker| held.get(&worker)).copied().unwrap_or_default();
            ensure!(known == deepest && told.cached_blocks == deepest, "{decision}, and {held:?}");
            Ok(held)
        })
        .await
    }

    /// What the filter decides about a prompt. The prompt is in headers, and no engine has the path: nothing is computed.
    async fn decision_on(&self, question: &Question) -> Result<String> {
        let list = question.tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let mut probe = self.client.post("/generate").header("x-warmroute-tokens", list);
        probe = probe.header("x-warmroute-model", question.lora.as_deref().unwrap_or(self.model));
        if let Some(salt) = &question.salt {
            probe = probe.header("x-warmroute-cache-salt", salt);
        }
        let response = probe.body("").send().await?;
        Ok(response.headers().get("x-warmroute-decision").context("no decision")?.to_str()?.to_owned())
    }

    fn body(&self, request: &Request) -> Value {
        let Request { question, max_tokens, fields } = request;
        let mut body = fields.clone();
        let model = question.lora.as_deref().unwrap_or(self.model);
        body.extend([
            ("model".to_owned(), json!(model)),
            ("prompt".to_owned(), json!(question.tokens)),
            ("max_tokens".to_owned(), json!(max_tokens)),
        ]);
        body.extend(question.salt.as_ref().map(|salt| ("cache_salt".to_owned(), json!(salt))));
        Value::Object(body)
    }

    /// Engines compute the last token of a prompt in any case, and with it its block.
    fn cached_tokens(&self, blocks: u64, question: &Question) -> u64 {
        let usable = (question.tokens.len() as u64).saturating_sub(1) / self.block_size;
        blocks.min(usable) * self.block_size
    }

    /// Waits until everything that the engines tell of a request is known.
    async fn settle(&self, question: &Question, worker: Option<SocketAddr>) -> Result<()> {
        let full = question.tokens.len() as u64 / self.block_size;
        wait::until_ok(SETTLE_DEADLINE, "the engines' events", async || {
            let held = self.collector.explain(question).await?;
            let known = worker
                .map_or_else(|| deepest(&held), |worker| held.get(&worker).copied().unwrap_or_default());
            ensure!(known == full, "{known} of {full} blocks are known: {held:?}");
            self.is_quiet().await
        })
        .await
    }

    async fn is_quiet(&self) -> Result<()> {
        for view in self.collector.workers().await? {
            let age = view.received.last_event_age_seconds;
            ensure!(age.is_none_or(|age| age >= QUIET_SECONDS), "{} still tells", view.worker);
        }
        Ok(())
    }
}

fn deepest(held: &BTreeMap<SocketAddr, u64>) -> u64 {
    held.values().copied().max().unwrap_or_default()
}

// === impl Told ===

impl Told {
    fn parse(decision: &str) -> Result<Self> {
        let field =
            |name: &str| decision.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        if decision.starts_with("fallback ") {
            let reason = field("reason").unwrap_or_default();
            ensure!(matches!(reason, "cold" | "short_prompt"), "{decision}");
            return Ok(Self { worker: None, cached_blocks: 0 });
        }
        let (Some(worker), Some(blocks)) = (field("worker"), field("cached_blocks")) else {
            bail!("{decision}")
        };
        Ok(Self { worker: Some(worker.parse()?), cached_blocks: blocks.trim_end_matches('+').parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::Told;

    #[test]
    fn decisions_are_read_as_the_filter_writes_them() {
        let told =
            Told::parse("steered worker=10.0.0.1:80 rank=0 cached_blocks=31+ prompt_blocks=~40 page_reads=6");
        let expected = Told { worker: Some("10.0.0.1:80".parse().unwrap()), cached_blocks: 31 };
        assert_eq!(told.unwrap(), expected);
        let cold = Told::parse("fallback reason=cold prompt_blocks=2 page_reads=1").unwrap();
        assert_eq!(cold, Told { worker: None, cached_blocks: 0 });
        assert!(Told::parse("fallback reason=no_index").is_err());
    }
}
