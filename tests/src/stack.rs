//! Everything together.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use crate::bootstrap::{Bootstrap, Publisher};
use crate::engine::Endpoints;
use crate::workspace::ScratchDir;
use crate::{Client, Collector, Engine, Envoy, client, collector, envoy, wait, workspace};

const STEER_DEADLINE: Duration = Duration::from_secs(20);

/// A running stack. Dropping it ends everything; its logs stay for whoever wants to know why, unless
/// [`stop`](Self::stop) says that all went well.
#[derive(Debug)]
pub struct Stack {
    /// Envoy.
    pub envoy: Envoy,
    /// The collector.
    pub collector: Collector,
    engines: Vec<Engine>,
    bootstrap: Bootstrap,
    dir: ScratchDir,
}

/// How to put a [`Stack`] together.
pub struct StackBuilder {
    name: String,
    engines: usize,
    engine_flags: Vec<String>,
    others: Vec<Endpoints>,
    block_size: u32,
    envoy: envoy::Options,
    publisher: Publisher,
    plugin: bool,
    filter: Vec<Value>,
    collector_edits: Vec<Edit<Value>>,
    bootstrap_edits: Vec<Edit<Bootstrap>>,
}

type Edit<T> = Box<dyn FnOnce(&mut T) -> Result<()> + Send>;

// === impl Stack ===

impl Stack {
    /// Four engines with blocks of 16 tokens, a collector and Envoy as shipped. `name` names the logs.
    #[must_use]
    pub fn builder(name: &str) -> StackBuilder {
        StackBuilder {
            name: name.to_owned(),
            engines: 4,
            engine_flags: Vec::new(),
            others: Vec::new(),
            block_size: 16,
            envoy: envoy::Options { concurrency: 2, flags: Vec::new(), reloadable: false },
            publisher: Publisher::default(),
            plugin: true,
            filter: Vec::new(),
            collector_edits: Vec::new(),
            bootstrap_edits: Vec::new(),
        }
    }

    /// Where clients meet warmroute.
    #[must_use]
    pub fn url(&self) -> String {
        self.envoy.url()
    }

    /// The same engines without warmroute.
    #[must_use]
    pub fn plain_url(&self) -> String {
        self.envoy.plain_url()
    }

    /// The engines.
    #[must_use]
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// The engines, to break them.
    pub fn engines_mut(&mut self) -> &mut [Engine] {
        &mut self.engines
    }

    /// One engine, to break it.
    ///
    /// # Errors
    /// When there is none of that number.
    pub fn engine_mut(&mut self, number: usize) -> Result<&mut Engine> {
        self.engines.get_mut(number).with_context(|| format!("the stack has no engine {number}"))
    }

    /// Changes the listeners of the running Envoy, and with them the filter's configuration; what `edit` changes elsewhere
    /// is not seen. Only for a stack that was built as [`reloadable`](StackBuilder::reloadable).
    ///
    /// # Errors
    /// When `edit` fails or Envoy refuses the outcome: the old listeners stay, and what was edited is forgotten.
    pub async fn reload(&mut self, edit: impl FnOnce(&mut Bootstrap) -> Result<()>) -> Result<()> {
        let mut edited = self.bootstrap.clone();
        edit(&mut edited)?;
        self.envoy.reload(&edited).await?;
        self.bootstrap = edited;
        Ok(())
    }

    /// Starts another Envoy, of the same configuration, beside the stack's. It ends with its handle.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_another_envoy(&self, name: &str) -> Result<Envoy> {
        let dir = self.dir.path().join(name);
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let options = envoy::Options { concurrency: 2, flags: Vec::new(), reloadable: false };
        Envoy::start(&dir, &mut self.bootstrap.clone(), options).await
    }

    /// Sends one prompt again and again until the filter steers it by what the index says, or would if it did not only
    /// observe: the index has then come all the way round.
    ///
    /// # Errors
    /// When it does not within 20 seconds.
    pub async fn wait_until_steering(&self) -> Result<()> {
        let client = Client::http1(self.url())?;
        let prompt = client::tokens(u64::MAX, 256);
        let waited = wait::until_ok(STEER_DEADLINE, "the filter to steer", async || {
            client.complete(&prompt, 1).await?;
            let counted = self.envoy.prometheus().await?;
            if counted.sum("warmroute_requests_total", &[("reason", "warm")]) > 0.0 {
                return Ok(());
            }
            let mut by_reason = counted.sums_by("warmroute_requests_total", "reason", &[]);
            by_reason.retain(|_, requests| *requests > 0.0);
            bail!("so far {by_reason:?}")
        });
        waited.await.map_err(|error| anyhow!("{error}\n{}", self.envoy.log_tail(10)))
    }

    /// Kills everything and removes the logs, as they no longer matter.
    ///
    /// # Errors
    /// When the logs cannot be removed.
    pub fn discard(self) -> Result<()> {
        let Self { envoy, collector, engines, bootstrap: _, dir } = self;
        drop((envoy, collector, engines));
        dir.remove()
    }

    /// Ends everything and removes the logs.
    ///
    /// # Errors
    /// When Envoy or the collector had died or had to be killed, or Wasm panicked.
    pub async fn stop(mut self) -> Result<()> {
        self.envoy.process_mut().check_alive()?;
        self.envoy.stop().await?;
        let log = self.envoy.log();
        ensure!(!log.contains("panicked at"), "the plugin panicked:\n{log}");
        self.collector.stop().await?;
        for engine in &mut self.engines {
            engine.stop().await?;
        }
        self.dir.remove()
    }
}

// === impl StackBuilder ===

impl StackBuilder {
    /// How many engines.
    #[must_use]
    pub fn engines(mut self, engines: usize) -> Self {
        self.engines = engines;
        self
    }

    /// Engines that somebody else has started, in the place of simulated ones.
    #[must_use]
    pub fn served_by(mut self, engines: impl IntoIterator<Item = Endpoints>) -> Self {
        self.engines = 0;
        self.others.extend(engines);
        self
    }

    /// More flags for every simulated engine.
    #[must_use]
    pub fn engine_flags<S: Into<String>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        self.engine_flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Tokens in a block, for engines and collector.
    #[must_use]
    pub fn block_size(mut self, tokens: u32) -> Self {
        self.block_size = tokens;
        self
    }

    /// Envoy's worker threads; 2 unless said.
    #[must_use]
    pub fn concurrency(mut self, threads: u32) -> Self {
        self.envoy.concurrency = threads;
        self
    }

    /// More flags for Envoy, as `["--component-log-level", "wasm:debug"]`.
    #[must_use]
    pub fn envoy_flags<S: Into<String>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        self.envoy.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Lets [`Stack::reload`] change Envoy's configuration while it runs.
    #[must_use]
    pub fn reloadable(mut self) -> Self {
        self.envoy.reloadable = true;
        self
    }

    /// Who fetches the index.
    #[must_use]
    pub fn publisher(mut self, publisher: Publisher) -> Self {
        self.publisher = publisher;
        self
    }

    /// A JSON merge patch to the filter's shipped configuration, as `json!({ "mode": "observe" })`.
    #[must_use]
    pub fn filter(mut self, patch: Value) -> Self {
        self.filter.push(patch);
        self
    }

    /// Envoy without warmroute: the plugin need not even be built.
    #[must_use]
    pub fn without_plugin(mut self) -> Self {
        self.plugin = false;
        self
    }

    /// Changes the collector's configuration.
    #[must_use]
    pub fn edit_collector(mut self, edit: impl FnOnce(&mut Value) -> Result<()> + Send + 'static) -> Self {
        self.collector_edits.push(Box::new(edit));
        self
    }

    /// Changes Envoy's bootstrap, after everything else.
    #[must_use]
    pub fn edit_bootstrap(
        mut self,
        edit: impl FnOnce(&mut Bootstrap) -> Result<()> + Send + 'static,
    ) -> Self {
        self.bootstrap_edits.push(Box::new(edit));
        self
    }

    /// Starts engines, collector and Envoy, each when the one before is ready.
    ///
    /// # Errors
    /// When one does not come up.
    pub async fn start(self) -> Result<Stack> {
        let dir = ScratchDir::new(&self.name)?;
        let mut flags = vec!["--block-size".to_owned(), self.block_size.to_string()];
        flags.extend(self.engine_flags);
        let mut engines = Vec::new();
        for number in 0..self.engines {
            engines.push(Engine::start(dir.path(), &format!("engine-{number}"), &flags).await?);
        }

        let endpoints: Vec<_> = engines.iter().map(Engine::endpoints).chain(self.others).collect();
        let mut config = collector::config(self.block_size, &endpoints);
        for edit in self.collector_edits {
            edit(&mut config)?;
        }
        let mut collector = Collector::start(dir.path(), config).await?;
        collector.wait_until_ready().await?;

        let mut bootstrap = Bootstrap::shipped()?;
        let addresses: Vec<_> = endpoints.iter().map(|engine| engine.address).collect();
        bootstrap.set_endpoints("workers", &addresses)?;
        bootstrap.set_endpoints("workers-plain", &addresses)?;
        bootstrap.set_endpoints("warmroute-collector", &[collector.address()])?;
        if self.plugin {
            bootstrap.set_plugin(&workspace::plugin()?)?;
            bootstrap.set_publisher(self.publisher)?;
            for patch in &self.filter {
                bootstrap.patch_filter(patch)?;
            }
        } else {
            bootstrap.remove_plugin()?;
        }
        for edit in self.bootstrap_edits {
            edit(&mut bootstrap)?;
        }
        let envoy = Envoy::start(dir.path(), &mut bootstrap, self.envoy).await?;
        Ok(Stack { envoy, collector, engines, bootstrap, dir })
    }
}
