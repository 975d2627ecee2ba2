//! One pool's prompts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tracing::{info, warn};
use warmroute_prompts::{Model, PromptError, Request};
use warmroute_routing::hash::Namespace;

use super::answer::{Answer, Source};
use super::comparison::{Comparison, compare, probes};
use super::engine::Engine;
use super::error::PromptsError;
use crate::config::{PoolConfig, PromptsConfig};
use crate::inspect::PromptsReport;
use crate::metrics::{Metrics, PromptMetrics};
use crate::pool::Tasks;

/// A request up to this size is kept to be compared.
const MAX_SAMPLE_BYTES: usize = 256 << 10;

/// A request: its path and body.
type Sample = (String, Bytes);

/// One pool's prompts.
#[derive(Debug)]
pub(super) struct PoolPrompts {
    name: String,
    config: PromptsConfig,
    block_size: u32,
    base_models: Vec<String>,
    model: RwLock<Loaded>,
    engine: Option<Engine>,
    /// The request whose tokens differ between files and engine: while there is one, the engine answers.
    differing: Mutex<Option<(Sample, String)>>,
    /// The last request that the files answered, to be compared next.
    recent: Mutex<Option<Sample>>,
    metrics: PromptMetrics,
}

#[derive(Clone, Debug)]
enum Loaded {
    /// There are no files.
    Nothing,
    /// They are being read.
    Loading,
    Model(Arc<Model>),
    Failed(String),
}

/// Counts a request by its result, when it is dropped.
pub(super) struct Counting {
    pool: Arc<PoolPrompts>,
    result: &'static str,
}

/// Tells a thread that nobody waits for it any more.
struct HangUp(Arc<AtomicBool>);

/// Seconds since 1970.
pub fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

// === impl PoolPrompts ===

impl PoolPrompts {
    pub(super) fn start(
        pool: &PoolConfig,
        config: &PromptsConfig,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let prompts = Arc::new(Self {
            name: pool.name.clone(),
            config: config.clone(),
            block_size: pool.block_size,
            base_models: pool.base_models.clone(),
            model: RwLock::new(if config.model.is_some() { Loaded::Loading } else { Loaded::Nothing }),
            engine: config.engine.as_deref().map(Engine::new),
            differing: Mutex::default(),
            recent: Mutex::default(),
            metrics: metrics.prompts(&pool.name),
        });
        tasks.spawn(Self::keep(Arc::downgrade(&prompts)));
        prompts
    }

    pub(super) fn fits(&self, pool: &PoolConfig, config: &PromptsConfig) -> bool {
        self.config == *config && self.block_size == pool.block_size && self.base_models == pool.base_models
    }

    /// Its metrics are taken back, if the pool has no prompts any more.
    pub(super) fn stop(&self, is_gone: bool) {
        info!(pool = self.name, "prompts come from elsewhere from now on");
        if is_gone {
            self.metrics.leave();
        }
    }

    /// A request begins. It counts as abandoned if its future is dropped before its result is told: whoever asked hung up.
    pub(super) fn begin(self: &Arc<Self>) -> Counting {
        Counting { pool: Arc::clone(self), result: "abandoned" }
    }

    pub(super) fn report(&self) -> PromptsReport {
        let differing = self.differing.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, error) = match self.loaded() {
            Loaded::Nothing => ("engine", None),
            Loaded::Loading => ("loading", None),
            Loaded::Model(_) if differing.is_some() => ("engine", None),
            Loaded::Model(_) => ("local", None),
            Loaded::Failed(error) => (if self.engine.is_some() { "engine" } else { "failed" }, Some(error)),
        };
        PromptsReport {
            source: state.to_owned(),
            error,
            differs: differing.as_ref().map(|(_, difference)| difference.clone()),
        }
    }

    fn loaded(&self) -> Loaded {
        self.model.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn answer(
        self: &Arc<Self>,
        threads: &Arc<Semaphore>,
        path: &str,
        body: Bytes,
    ) -> Result<Answer, PromptsError> {
        let differs = self.differing.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let model = match (self.loaded(), &self.engine) {
            (Loaded::Model(model), _) if !differs => model,
            (_, Some(engine)) => return self.ask(engine, path, body).await,
            (Loaded::Model(model), None) => model,
            (Loaded::Loading | Loaded::Nothing, None) => return Err(PromptsError::NotReady),
            (Loaded::Failed(error), None) => return Err(PromptsError::Unusable(error)),
        };
        let thread = Arc::clone(threads).acquire_owned().await.map_err(|_| PromptsError::Stopping)?;
        let hang_up = HangUp(Arc::default());
        let (own, hung_up) = (Arc::clone(self), Arc::clone(&hang_up.0));
        let (asked, sent) = (path.to_owned(), body.clone());
        let work = tokio::task::spawn_blocking(move || {
            let result = own.local(&model, &asked, &sent, &hung_up);
            drop(thread);
            result
        });
        let result = work.await.map_err(|_| PromptsError::Stopping)?;
        drop(hang_up);
        match (result, &self.engine) {
            // What the files cannot do, the engine may.
            (
                Err(PromptError::Unsupported(_) | PromptError::Template(_) | PromptError::Tokenizer(_)),
                Some(engine),
            ) => self.ask(engine, path, body).await,
            (Ok(answer), engine) => {
                if engine.is_some() && body.len() <= MAX_SAMPLE_BYTES {
                    let sample = (path.to_owned(), body);
                    *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
                }
                Ok(answer)
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Runs on a thread of its own; it stops between two steps, or two pieces of the text, when nobody waits any more.
    fn local(
        &self,
        model: &Model,
        path: &str,
        body: &[u8],
        hung_up: &AtomicBool,
    ) -> Result<Answer, PromptError> {
        let begun = Instant::now();
        let wanted = || !hung_up.load(Ordering::Relaxed);
        if !wanted() {
            return Err(PromptError::Abandoned);
        }
        let request = Request::parse(path, body)?;
        let rendered = model.render(&request, now())?;
        let prompt = model.tokenize(&rendered, &wanted)?;
        let answer = Answer::new(prompt, self.block_size, self.namespace(&request), Source::Local);
        self.metrics.tokenized(begun.elapsed(), model.tokenizer().counts());
        Ok(answer)
    }

    async fn ask(&self, engine: &Engine, path: &str, body: Bytes) -> Result<Answer, PromptsError> {
        let begun = Instant::now();
        let request = Request::parse(path, &body)?;
        let prompt = engine.tokens(&request, path, &body).await?;
        self.metrics.asked(begun.elapsed());
        Ok(Answer::new(prompt, self.block_size, self.namespace(&request), Source::Engine))
    }

    /// Any model name that is not the base model's is an adapter's.
    fn namespace(&self, request: &Request) -> Namespace {
        let is_adapter =
            |name: &&str| !self.base_models.is_empty() && self.base_models.iter().all(|base| base != name);
        Namespace::new(request.model.as_deref().filter(is_adapter), request.cache_salt.as_deref())
    }

    /// Reads the files, then compares them with the engine for as long as the pool is there.
    async fn keep(pool: Weak<Self>) {
        let Some(prompts) = pool.upgrade() else { return };
        if let Some(folder) = prompts.config.model.clone() {
            let options = prompts.config.options.clone();
            let loaded = match tokio::task::spawn_blocking(move || Model::load(&folder, options)).await {
                Ok(Ok(model)) => Loaded::Model(Arc::new(model)),
                Ok(Err(error)) => Loaded::Failed(error.to_string()),
                Err(error) => Loaded::Failed(error.to_string()),
            };
            match &loaded {
                Loaded::Failed(error) => {
                    warn!(pool = prompts.name, %error, "the model's files cannot be used");
                }
                _ => info!(pool = prompts.name, "the model's files are read"),
            }
            prompts.metrics.usable(matches!(loaded, Loaded::Model(_)));
            *prompts.model.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        }
        let (Loaded::Model(model), Some(engine)) = (prompts.loaded(), prompts.engine.clone()) else { return };
        let interval = prompts.config.check_interval;
        let mut pause = Duration::from_millis(500).min(interval);
        let mut samples: Vec<Sample> = probes(prompts.base_models.first().map(String::as_str))
            .into_iter()
            .map(|(path, body)| (path.to_owned(), body))
            .collect();
        drop(prompts);
        loop {
            let Some(prompts) = pool.upgrade() else { return };
            let open = prompts.compare_all(&model, &engine, samples).await;
            // An engine that is just starting is soon asked again.
            pause = if open.is_empty() { interval } else { (pause * 2).min(interval) };
            samples = open;
            drop(prompts);
            tokio::time::sleep(pause).await;
            let Some(prompts) = pool.upgrade() else { return };
            samples.extend(prompts.recent.lock().unwrap_or_else(PoisonError::into_inner).take());
            let again = prompts.differing.lock().unwrap_or_else(PoisonError::into_inner);
            samples.extend(again.as_ref().map(|(sample, _)| sample.clone()));
        }
    }

    /// Compares requests; those that the engine did not tell about are to be tried again.
    async fn compare_all(&self, model: &Arc<Model>, engine: &Engine, samples: Vec<Sample>) -> Vec<Sample> {
        let mut open = Vec::new();
        for sample in samples {
            let result = compare(model, engine, &sample.0, &sample.1).await;
            self.metrics.compared(match &result {
                Comparison::Equal => "equal",
                Comparison::Different(_) => "different",
                Comparison::Unknown(_) => "unknown",
            });
            let mut differing = self.differing.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Comparison::Equal => {
                    if differing.take_if(|(differs, _)| *differs == sample).is_some() {
                        info!(pool = self.name, "the model's files have the engine's tokens again");
                    }
                }
                Comparison::Different(difference) => {
                    if differing.is_none() {
                        warn!(
                            pool = self.name,
                            path = sample.0,
                            %difference,
                            "the model's files have other tokens than the engine, which answers from now on"
                        );
                        *differing = Some((sample, difference));
                    }
                }
                Comparison::Unknown(error) => {
                    tracing::debug!(pool = self.name, %error, "the engine does not tell its tokens");
                    if open.len() < 16 && differing.as_ref().is_none_or(|(differs, _)| *differs != sample) {
                        open.push(sample);
                    }
                }
            }
            self.metrics.differs(differing.is_some());
        }
        open
    }
}

// === impl Counting ===

impl Counting {
    pub(super) fn end(mut self, result: &Result<Answer, PromptsError>) {
        self.result = match result {
            Ok(Answer { source: Source::Local, .. }) => "local",
            Ok(Answer { source: Source::Engine, .. }) => "engine",
            Err(error) => error.kind(),
        };
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.pool.metrics.request(self.result);
    }
}

// === impl HangUp ===

impl Drop for HangUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
