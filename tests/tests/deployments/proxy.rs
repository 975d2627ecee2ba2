//! A real Envoy, configured as a control plane would, and what is asked of it.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use warmroute_e2e::workspace::{self, ScratchDir};
use warmroute_e2e::{Answer, Bootstrap, Client, Stack, client, envoy, tokens, wait};

const DEADLINE: Duration = Duration::from_secs(30);
const DESTINATION: &str = "x-gateway-destination-endpoint";

/// Where prompts may come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In a header alone.
    Header,
    /// In the body, too.
    Body,
}

/// A control plane's proxy: its own configuration before warmroute comes in.
pub(crate) struct Generated {
    /// The listener of the Gateway.
    pub(crate) listener: Value,
    /// The clusters, with the addresses of engines and collector.
    pub(crate) clusters: Vec<Value>,
    /// What else the bootstrap holds.
    pub(crate) bootstrap: Value,
}

// === impl Generated ===

impl Generated {
    /// Reads a fixture, and puts the addresses of `bootstrap`'s clusters `workers` and `warmroute-collector` in the place
    /// of the words `ENGINES` and `COLLECTOR`.
    pub(crate) fn read(fixture: &str, bootstrap: &mut Bootstrap) -> Result<Self> {
        let mut read: Value = serde_saphyr::from_str(fixture).context("a fixture is YAML")?;
        let mut clusters: Vec<Value> = serde_json::from_value(read["clusters"].take())?;
        for cluster in &mut clusters {
            let source = match cluster["load_assignment"].as_str() {
                Some("ENGINES") => "workers",
                Some("COLLECTOR") => "warmroute-collector",
                other => panic!("{other:?} are no endpoints"),
            };
            cluster["load_assignment"] = load_assignment(bootstrap, source)?;
        }
        Ok(Self { listener: read["listener"].take(), clusters, bootstrap: read["bootstrap"].take() })
    }

    /// Makes `bootstrap` a bootstrap of this: listener, clusters, and nothing else of warmroute's.
    pub(crate) fn put_into(mut self, bootstrap: &mut Bootstrap) -> Result<()> {
        // The harness knows the listener by this name.
        self.listener["name"] = json!("warmroute");
        *bootstrap.listener("warmroute")? = self.listener;
        let whole = bootstrap.value_mut().as_object_mut().context("a bootstrap is an object")?;
        whole.remove("bootstrap_extensions");
        whole.remove("stats_config");
        let rest = self.bootstrap.as_object().cloned().unwrap_or_default();
        whole.extend(rest);
        let clusters = bootstrap.value_mut().pointer_mut("/static_resources/clusters");
        let clusters = clusters.and_then(Value::as_array_mut).context("a bootstrap has clusters")?;
        // The listener without warmroute keeps its own.
        clusters.retain(|cluster| cluster["name"] == "workers-plain");
        clusters.extend(self.clusters);
        Ok(())
    }
}

/// The addresses of one of the bootstrap's clusters.
pub(crate) fn load_assignment(bootstrap: &mut Bootstrap, cluster: &str) -> Result<Value> {
    Ok(bootstrap.cluster(cluster)?["load_assignment"].clone())
}

/// The filters of a listener's connection manager.
pub(crate) fn http_filters(listener: &mut Value) -> &mut Vec<Value> {
    let filters = connection_manager(listener)["http_filters"].as_array_mut();
    filters.expect("a list of filters")
}

/// A listener's connection manager.
pub(crate) fn connection_manager(listener: &mut Value) -> &mut Value {
    let chain = if listener.get("default_filter_chain").is_some() {
        &mut listener["default_filter_chain"]
    } else {
        &mut listener["filter_chains"][0]
    };
    &mut chain["filters"][0]["typed_config"]
}

/// Lets Envoy judge the configuration that `edit` makes.
pub(crate) fn assert_valid(name: &str, edit: impl FnOnce(&mut Bootstrap) -> Result<()>) {
    let dir = ScratchDir::new(name).unwrap();
    let mut bootstrap = Bootstrap::shipped().unwrap();
    bootstrap.set_plugin(&workspace::plugin().unwrap()).unwrap();
    edit(&mut bootstrap).unwrap();
    let path = dir.path().join("envoy.json");
    fs::write(&path, bootstrap.to_json()).unwrap();
    envoy::validate_file(&path).unwrap();
    dir.remove().unwrap();
}

/// Starts engines, a collector and the Envoy that `edit` makes, and holds it to all that a deployment promises.
pub(crate) async fn assert_steers(
    name: &str,
    mode: Mode,
    edit: impl FnOnce(&mut Bootstrap) -> Result<()> + Send + 'static,
) -> Result<()> {
    let stack = Stack::builder(name).edit_bootstrap(edit).start().await?;
    let client = Client::http1(stack.url())?;
    for (engine, prompt) in [(3, tokens(1, 512)), (1, tokens(2, 512))] {
        let engine = stack.engines().get(engine).context("no such engine")?;
        let warm = engine.address();
        Client::http1(engine.url())?.complete(&prompt, 1).await?;
        let told = format!("steered worker={warm} ");
        wait_until_told(&client, &prompt, &told).await.with_context(|| stack.envoy.log_tail(20))?;
        let headers = [("x-warmroute-tokens-base64", header(&prompt))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let by_header = client.send(client::completion(&prompt, 1), &headers).await?;
        assert_warm(&by_header, &told, &warm.to_string())?;
        let by_body = client.complete(&prompt, 1).await?;
        match mode {
            Mode::Body => assert_warm(&by_body, &told, &warm.to_string())?,
            Mode::Header => {
                ensure!(by_body.status.is_success(), "{by_body:?}");
                ensure!(by_body.decision().is_some_and(|it| it.starts_with("fallback")), "{by_body:?}");
            }
        }
    }
    if mode == Mode::Body {
        assert_holds_long_bodies(&stack, &client).await?;
    }
    assert_spoofing_is_void(&stack, &client).await?;
    stack.stop().await
}

fn assert_warm(answer: &Answer, told: &str, worker: &str) -> Result<()> {
    ensure!(answer.decision().is_some_and(|decision| decision.starts_with(told)), "{answer:?}");
    ensure!(answer.engine() == Some(worker), "{answer:?}");
    ensure!(answer.usage.cached_tokens > 0, "{answer:?}");
    Ok(())
}

/// A body that is longer than a control plane's usual limits, and has to be held to its last part: two engines know most
/// of the prompt, and only one knows all.
async fn assert_holds_long_bodies(stack: &Stack, client: &Client) -> Result<()> {
    let [most, all, ..] = stack.engines() else { bail!("fewer than two engines") };
    let prompt = tokens(3, 10_240);
    Client::http1(most.url())?.complete(&prompt[..8_192], 1).await?;
    Client::http1(all.url())?.complete(&prompt, 1).await?;
    let told = format!("steered worker={} ", all.address());
    wait_until_told(client, &prompt, &told).await?;
    assert_warm(&client.complete(&prompt, 1).await?, &told, &all.address().to_string())
}

/// Asks about a prompt, in a header and where it costs an engine nothing, until the decision begins as told.
async fn wait_until_told(client: &Client, prompt: &[u32], told: &str) -> Result<()> {
    let list = header(prompt);
    wait::until_ok(DEADLINE, told, async || {
        let probe =
            client.post("/generate").header("x-warmroute-tokens-base64", &list).body("").send().await?;
        let decision = probe.headers().get("x-warmroute-decision").context("no decision")?.to_str()?;
        ensure!(decision.starts_with(told), "{decision}");
        Ok::<_, anyhow::Error>(())
    })
    .await
}

fn header(prompt: &[u32]) -> String {
    let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Requests that are not steered are spread, whatever host their client names.
async fn assert_spoofing_is_void(stack: &Stack, client: &Client) -> Result<()> {
    let named = stack.engines().first().context("no engine")?.address().to_string();
    let mut served = BTreeSet::new();
    for _ in 0..32 {
        let answer = client.send(client::completion(&[1, 2, 3], 1), &[(DESTINATION, &named)]).await?;
        ensure!(answer.status.is_success(), "{answer:?}");
        served.extend(answer.engine().map(str::to_owned));
    }
    ensure!(served.len() > 1, "all requests went to {served:?}, as their client said");
    Ok(())
}
