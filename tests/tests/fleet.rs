//! Several Envoys on one collector: each weighs what the others have in flight, and what the engines have from elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reqwest::Response;
use serde_json::{Value, json};
use warmroute_e2e::client::completion;
use warmroute_e2e::{Client, Envoy, Stack, tokens, wait};

const DEADLINE: Duration = Duration::from_secs(30);
const PROMPT_TOKENS: usize = 512;

/// Makes engines compute a prompt, and waits until each of these Envoys would name each of them.
async fn warm(stack: &Stack, engines: &[usize], prompt: &[u32], envoys: [&Envoy; 2]) -> Result<()> {
    let mut expected = BTreeSet::new();
    for number in engines {
        let engine = stack.engines().get(*number).context("no such engine")?;
        Client::http1(engine.url())?.complete(prompt, 1).await?;
        expected.insert(engine.address().to_string());
    }
    let list = prompt.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    for envoy in envoys {
        let client = Client::http1(envoy.url())?;
        let mut named = BTreeSet::new();
        wait::until_ok(DEADLINE, "the engines to be named", async || {
            let probe = client.post("/generate").header("x-warmroute-tokens", &list).body("").send().await?;
            let decision = probe.headers().get("x-warmroute-decision").context("no decision")?.to_str()?;
            let worker = decision.split_once("worker=").context(decision.to_owned())?.1;
            named.extend(worker.split(' ').next().map(str::to_owned));
            ensure!(named == expected, "{named:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// A request that is under way: its answer streams until this is dropped.
async fn begin(url: String, prompt: &[u32]) -> Result<Response> {
    let mut body = completion(prompt, 10_000);
    body.as_object_mut().context("no object")?.insert("stream".to_owned(), json!(true));
    let response = Client::http1(url)?.post("/v1/completions").json(&body).send().await?;
    ensure!(response.status().is_success(), "{response:?}");
    Ok(response)
}

/// The sum of a gauge of load over all workers.
async fn gauge(envoy: &Envoy, source: &str) -> Result<u64> {
    let stats = envoy.stats(&format!("warmroute_load_requests.*source={source}")).await?;
    Ok(stats.values().sum())
}

async fn wait_for_gauge(envoy: &Envoy, source: &str, expected: u64) -> Result<()> {
    wait::until_ok(DEADLINE, format!("{expected} requests of {source}"), async || {
        let found = gauge(envoy, source).await?;
        ensure!(found == expected, "{found}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn each_envoy_sees_the_others_load_within_100_ms() -> Result<()> {
    let stack = Stack::builder("fleet-sees").engines(2).start().await?;
    let second = stack.start_another_envoy("second").await?;
    let prompt = tokens(1, PROMPT_TOKENS);
    warm(&stack, &[0], &prompt, [&stack.envoy, &second]).await?;
    let mut seen = Vec::new();
    let mut forgotten = Vec::new();
    for round in 0..20 {
        let (from, to) = if round % 2 == 0 { (&stack.envoy, &second) } else { (&second, &stack.envoy) };
        wait_for_gauge(to, "others", 0).await?;
        let begun = Instant::now();
        let request = tokio::spawn({
            let (url, prompt) = (from.url(), prompt.clone());
            async move {
                let body = json!({ "model": "sim", "prompt": prompt, "max_tokens": 10_000, "stream": true });
                Client::http1(url)?
                    .post("/v1/completions")
                    .json(&body)
                    .send()
                    .await
                    .map_err(anyhow::Error::from)
            }
        });
        wait_for_gauge(to, "others", 1).await?;
        seen.push(begun.elapsed());
        let response = request.await??;
        wait_for_gauge(from, "own", 1).await?;
        let ended = Instant::now();
        drop(response);
        wait_for_gauge(to, "others", 0).await?;
        forgotten.push(ended.elapsed());
    }
    seen.sort_unstable();
    forgotten.sort_unstable();
    println!("seen by the other Envoy after {seen:?}");
    println!("forgotten by the other Envoy after {forgotten:?}");
    // A busy machine makes some late; a design that is slower makes most.
    for times in [&seen, &forgotten] {
        let median = times.get(times.len() / 2).context("no times")?;
        ensure!(*median <= Duration::from_millis(100), "{times:?}");
    }
    stack.stop().await
}

#[tokio::test]
async fn a_burst_split_over_two_envoys_is_spread_by_the_load_of_both() -> Result<()> {
    let policy =
        json!({ "pools": [{ "name": "llama", "clusters": ["workers"], "policy": { "name": "prefix" } }] });
    let flags = ["--max-running", "64", "--num-blocks", "16384"];
    let stack = Stack::builder("fleet-burst").filter(policy).engine_flags(flags).start().await?;
    let second = stack.start_another_envoy("second").await?;
    let (pinned, hot) = (tokens(1, PROMPT_TOKENS), tokens(2, PROMPT_TOKENS));
    warm(&stack, &[0], &pinned, [&stack.envoy, &second]).await?;
    warm(&stack, &[0, 1, 2, 3], &hot, [&stack.envoy, &second]).await?;

    // One Envoy has 16 requests at the one engine that holds their prompt, and the other hears of them.
    let mut under_way = Vec::new();
    for _ in 0..16 {
        under_way.push(begin(stack.url(), &pinned).await?);
    }
    wait_for_gauge(&second, "others", 16).await?;
    // Now 48 more, at once, a quarter of them through it. Where each weighed its own load alone, that engine would get 9 of
    // the other's 36, and have 1.56 times the mean.
    let burst = (0..48).map(|number| {
        let (url, prompt) = (if number % 4 == 0 { stack.envoy.url() } else { second.url() }, hot.clone());
        tokio::spawn(async move {
            let body = json!({ "model": "sim", "prompt": prompt, "max_tokens": 10_000, "stream": true });
            Client::http1(url)?.post("/v1/completions").json(&body).send().await.map_err(anyhow::Error::from)
        })
    });
    for request in burst.collect::<Vec<_>>() {
        under_way.push(request.await??);
    }
    let mut shares = BTreeMap::<String, u32>::new();
    for response in &under_way {
        let engine = response.headers().get("x-simengine").context("no engine")?.to_str()?;
        *shares.entry(engine.to_owned()).or_default() += 1;
    }
    println!("requests by engine: {shares:?}");
    let most = shares.values().max().copied().unwrap_or_default();
    ensure!(f64::from(most) < 1.5 * 64.0 / 4.0, "{shares:?}");
    drop(under_way);
    for envoy in [&stack.envoy, &second] {
        wait_for_gauge(envoy, "own", 0).await?;
        wait_for_gauge(envoy, "others", 0).await?;
    }
    stack.stop().await
}

/// Who answers.
fn engine(response: &Response) -> Result<&str> {
    Ok(response.headers().get("x-simengine").context("no engine")?.to_str()?)
}

#[tokio::test]
async fn what_an_engine_has_from_elsewhere_counts_until_its_word_is_old() -> Result<()> {
    let pool = json!({ "name": "llama", "clusters": ["workers"], "policy": { "name": "least_load" } });
    let mut stack = Stack::builder("fleet-elsewhere")
        .engines(2)
        .engine_flags(["--num-blocks", "16384"])
        .filter(json!({ "pools": [pool] }))
        .edit_collector(|config| {
            let pool = config.pointer_mut("/pools/0").and_then(Value::as_object_mut).context("no pool")?;
            // An engine that stands still is to stay in the pool.
            pool.insert("health_interval_ms".to_owned(), json!(0));
            Ok(())
        })
        .start()
        .await?;
    stack.wait_until_steering().await?;

    // Eight requests at one engine that no Envoy knows of.
    let direct = stack.engines().first().context("no engine")?.url();
    let mut under_way = Vec::new();
    for number in 0..8 {
        under_way.push(begin(direct.clone(), &tokens(number, PROMPT_TOKENS)).await?);
    }
    let busy = engine(under_way.first().context("no request")?)?.to_owned();
    wait_for_gauge(&stack.envoy, "unbooked", 8).await?;
    // Without its word, every other one would go there.
    for number in 10..14 {
        let response = begin(stack.url(), &tokens(number, PROMPT_TOKENS)).await?;
        ensure!(engine(&response)? != busy, "{response:?}");
        under_way.push(response);
    }

    // Its word grows old, as it stands still. What the other engine has counts on.
    stack.engine_mut(0)?.process_mut().freeze()?;
    wait_for_gauge(&stack.envoy, "unbooked", 0).await?;
    let url = stack.url();
    let late = tokio::spawn(async move { begin(url, &tokens(20, PROMPT_TOKENS)).await });
    wait_for_gauge(&stack.envoy, "own", 5).await?;
    stack.engine_mut(0)?.process_mut().thaw()?;
    let late = late.await??;
    ensure!(engine(&late)? == busy, "{late:?}");
    drop((under_way, late));
    for source in ["own", "unbooked"] {
        wait_for_gauge(&stack.envoy, source, 0).await?;
    }
    stack.stop().await
}
