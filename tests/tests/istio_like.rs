//! The plugin as an Istio `WasmPlugin` has it: header mode, an empty `vm_id`, neither a bootstrap extension nor
//! `allow_on_headers_stop_iteration`, and another plugin in the same key space.
//!
//! The other plugin is this one too, with another pool. As `vm_id` and code are the same, Envoy even runs both in one VM.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use warmroute_e2e::bootstrap::{POOL, Publisher};
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{Bootstrap, Client, ProxyOptions, RawClient, ScriptedFeed, Stack, client, tokens, wait};

const DEADLINE: Duration = Duration::from_secs(30);
const PROMPT_TOKENS: usize = 512;

/// The other plugin's pool.
const OTHER: &str = "other";

/// What Istio's policy leaves of the shipped configuration.
fn as_istio_has_it(bootstrap: &mut Bootstrap) -> Result<()> {
    bootstrap.set_publisher(Publisher::Worker)?;
    let pools = json!([{ "name": POOL, "clusters": ["workers"] }]);
    bootstrap.patch_filter(&json!({ "read_body": false, "pools": pools }))?;
    let plugin = bootstrap.filter()?.as_object_mut().context("no plugin")?;
    for field in ["allow_on_headers_stop_iteration", "reload_config"] {
        ensure!(plugin.remove(field).is_some(), "the shipped configuration has no {field}");
    }
    plugin.insert("failure_policy".to_owned(), json!("FAIL_OPEN"));
    let vm = plugin.get_mut("vm_config").and_then(Value::as_object_mut).context("no vm_config")?;
    ensure!(vm.remove("vm_id").is_some(), "the shipped configuration has no vm_id");
    Ok(())
}

/// Puts another plugin before warmroute: the same module with other headers and another pool.
fn add_other_plugin(bootstrap: &mut Bootstrap) -> Result<()> {
    let mut vm = bootstrap.filter()?.get("vm_config").cloned().context("no vm_config")?;
    ensure!(
        vm.get("vm_id").is_none() && vm.get_mut("configuration").is_none(),
        "the key space is not the same"
    );
    let config = json!({
        "pools": [{ "name": OTHER }],
        "read_body": false,
        "prompt_headers": {
            "tokens": "x-other-tokens",
            "tokens_base64": "x-other-tokens-base64",
            "block_hashes": "x-other-block-hashes",
            "model": "x-other-model",
            "cache_salt": "x-other-cache-salt",
        },
        "destination_header": "x-other-destination",
        "decision_header": "x-other-decision",
        "recent_routes_ms": 0,
        "publisher": { "cluster": "warmroute-collector" },
    });
    let filter = json!({
        "name": "other",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": "other",
                "root_id": "other",
                "failure_policy": "FAIL_OPEN",
                "vm_config": vm,
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": config.to_string(),
                },
            },
        },
    });
    let manager = bootstrap.connection_manager("warmroute")?;
    let filters = manager.get_mut("http_filters").and_then(Value::as_array_mut).context("no filters")?;
    filters.insert(0, filter);
    Ok(())
}

/// The collector serves the other plugin's pool, too: of the same engines, only the first two.
fn add_other_pool(collector: &mut Value) -> Result<()> {
    let pools = collector.get_mut("pools").and_then(Value::as_array_mut).context("no pools")?;
    let mut other = pools.first().cloned().context("no pool")?;
    other.as_object_mut().context("no pool")?.insert("name".to_owned(), json!(OTHER));
    other.get_mut("workers").and_then(Value::as_array_mut).context("no workers")?.truncate(2);
    pools.push(other);
    Ok(())
}

fn header_list(prompt: &[u32]) -> String {
    prompt.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// What both plugins say about a prompt: warmroute first. Nothing is computed for it.
async fn decisions(client: &Client, prompt: &[u32]) -> Result<(String, String)> {
    let list = header_list(prompt);
    let probe = client.post("/generate").header("x-warmroute-tokens", &list).header("x-other-tokens", &list);
    let response = probe.body("").send().await?;
    let decision = |name| -> Result<String> {
        Ok(response.headers().get(name).with_context(|| format!("no {name}"))?.to_str()?.to_owned())
    };
    Ok((decision("x-warmroute-decision")?, decision("x-other-decision")?))
}

#[tokio::test]
async fn steers_by_header_beside_another_plugin_in_the_same_key_space() -> Result<()> {
    let stack = Stack::builder("istio-like")
        .edit_collector(add_other_pool)
        .edit_bootstrap(as_istio_has_it)
        .edit_bootstrap(add_other_plugin)
        .filter(json!({ "recent_routes_ms": 0 }))
        .start()
        .await?;
    let client = Client::http1(stack.url())?;
    // The first prompt lies where both pools have a worker, the second where only warmroute's has.
    for (engine, both) in [(0, true), (3, false)] {
        let engine = stack.engines().get(engine).context("no such engine")?;
        let worker = engine.address();
        let prompt = tokens(worker.port().into(), PROMPT_TOKENS);
        Client::http1(engine.url())?.complete(&prompt, 1).await?;
        let told = format!("steered worker={worker} ");
        let others = if both { told.as_str() } else { "fallback reason=cold" };
        wait::until_ok(DEADLINE, "both plugins to know the prompt", async || {
            let (own, other) = decisions(&client, &prompt).await?;
            ensure!(own.starts_with(&told) && other.starts_with(others), "{own}; the other: {other}");
            Ok::<_, anyhow::Error>(())
        })
        .await
        .with_context(|| stack.envoy.log_tail(20))?;
        let list = header_list(&prompt);
        let body = client::completion(&prompt, 1);
        let answer = client.send(body, &[("x-warmroute-tokens", &list), ("x-other-tokens", &list)]).await?;
        ensure!(answer.engine() == Some(worker.to_string().as_str()), "{answer:?}");
        ensure!(answer.usage.cached_tokens > 0, "{answer:?}");
    }

    // A worker's VM publishes each pool: there is nobody else.
    let log = stack.envoy.log();
    for pool in ["llama", OTHER] {
        let told = format!("pool {pool}: publishing in this proxy now");
        ensure!(log.contains(&told), "nobody took {pool}:\n{log}");
        let answers =
            stack.envoy.prometheus().await?.sum("warmroute_publisher_answers_total", &[("pool", pool)]);
        ensure!(answers > 0.0, "nobody publishes {pool}");
    }
    stack.stop().await
}

/// A worker that answers as soon as it has a request's headers, and never looks at a body.
async fn start_hasty_worker() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_hastily(stream, address));
        }
    });
    Ok(address)
}

async fn answer_hastily(mut stream: TcpStream, address: SocketAddr) -> Result<()> {
    let mut seen = Vec::new();
    while !seen.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut seen).await? > 0, "closed");
    }
    let body = json!({ "served_by": address }).to_string();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await?;
    // Until the other end closes.
    while stream.read_buf(&mut seen).await? > 0 {
        seen.clear();
    }
    Ok(())
}

#[tokio::test]
async fn bodies_are_never_held() -> Result<()> {
    let workers = [start_hasty_worker().await?, start_hasty_worker().await?];
    let [_, warm] = workers;
    let prompt = tokens(1, PROMPT_TOKENS);
    let index = ScriptedIndex::new(101, 4, &workers).with(warm, &prompt);
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let mut options = ProxyOptions::new("istio-like-bodies", &workers, feed.address())?;
    options.publisher = Publisher::Worker;
    options.edit = Some(as_istio_has_it);
    let proxy = options.start().await?;

    // A body of which half is sent, and the rest only after the answer: whoever waited for it would wait for ever.
    let half = "POST /v1/completions HTTP/1.1\r\nhost: e2e\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n";
    let send = async |header: &str| -> Result<String> {
        let mut client = RawClient::connect(&proxy.envoy.url()).await?;
        client.send(format!("{half}{header}\r\n{}", " ".repeat(50_000)).as_bytes()).await?;
        Ok(client.answer().await?.text)
    };
    let tokens = format!("x-warmroute-tokens: {}\r\n", header_list(&prompt));
    let told = format!("x-warmroute-decision: steered worker={warm} ");
    wait::until_ok(DEADLINE, "a half-sent request to be steered", async || {
        let answer = send(&tokens).await?;
        ensure!(answer.contains(&told) && answer.contains(&format!(r#""served_by":"{warm}""#)), "{answer}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    // Without a prompt in a header, too.
    let answer = send("").await?;
    ensure!(answer.contains("x-warmroute-decision: fallback reason=body_not_read"), "{answer}");
    proxy.stop().await
}
