//! What a client sends never chooses the host.

#![allow(clippy::indexing_slicing, clippy::unreachable, reason = "a scenario that is wrong fails")]

use anyhow::{Context, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{ProxyOptions, ScriptedFeed, Upstream, tokens, workspace};

const DESTINATION: &str = "x-gateway-destination-endpoint";

#[tokio::test]
async fn a_spoofed_destination_never_chooses_the_host_whatever_the_path_and_method() -> Result<()> {
    let (warm, other, outsider) =
        (Upstream::start().await?, Upstream::start().await?, Upstream::start().await?);
    let workers = [warm.address(), other.address()];
    let prompt = tokens(1, 320);
    let index = ScriptedIndex::new(101, 4, &workers).with(warm.address(), &prompt);
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let proxy = ProxyOptions::new("spoofed", &workers, feed.address())?.start().await?;
    proxy.wait_until_steered_to(warm.address(), &prompt).await?;

    // A steered request goes where the filter says, not where the client says: neither to another worker nor elsewhere.
    for spoofed in [other.address(), outsider.address()] {
        for _ in 0..4 {
            let echo = proxy.send(&prompt, &[(DESTINATION, &spoofed.to_string())]).await?;
            ensure!(echo.served_by == warm.address(), "{echo:?}");
            ensure!(echo.headers.get(DESTINATION).is_none(), "the header has reached the upstream: {echo:?}");
        }
    }

    // And one that the filter leaves alone is balanced as if the header were not there: over both workers.
    let http = reqwest::Client::builder().no_proxy().build()?;
    for (method, path) in [
        (Method::GET, "/v1/models"),
        (Method::POST, "/v1/chat/completions"),
        (Method::PUT, "/upload"),
        (Method::DELETE, "/v1/completions"),
        (Method::OPTIONS, "/v1/completions"),
        (Method::GET, "/"),
    ] {
        let mut served = Vec::new();
        for _ in 0..24 {
            let request = http.request(method.clone(), format!("{}{path}", proxy.envoy.url()));
            let request = request.header(DESTINATION, other.address().to_string()).body("{}");
            let echo: Value = request.send().await?.json().await?;
            ensure!(echo["headers"].get(DESTINATION).is_none(), "{method} {path}: {echo}");
            served.push(echo["served_by"].clone());
        }
        for worker in workers {
            ensure!(
                served.contains(&json!(worker)),
                "{method} {path}: none of {} went to {worker}",
                served.len()
            );
        }
    }
    proxy.stop().await
}

#[tokio::test]
async fn a_spoofed_destination_does_not_choose_the_host_where_the_vm_is_dead() -> Result<()> {
    let (a, b) = (Upstream::start().await?, Upstream::start().await?);
    let workers = [a.address(), b.address()];
    let feed = ScriptedFeed::start(|_| Reply::Hold).await?;
    let mut options = ProxyOptions::new("dead-vm", &workers, feed.address())?;
    options.plugin = workspace::faulty_plugin()?;
    options.concurrency = 1;
    // With this policy a dead VM stays dead, and requests pass by it: the worst case.
    options.edit = Some(|bootstrap| {
        let filter = bootstrap.filter()?.as_object_mut().context("no filter")?;
        filter.insert("failure_policy".to_owned(), json!("FAIL_OPEN"));
        filter.remove("reload_config");
        Ok(())
    });
    let proxy = options.start().await?;
    let client = proxy.client()?;
    let crash = client.post("/v1/completions").header("x-warmroute-fault", "panic").body("{}").send().await?;
    ensure!(crash.status() == 503 && proxy.envoy.log().contains("panicked at"), "no VM has died");
    let mut served = Vec::new();
    for _ in 0..24 {
        let request = client.post("/v1/completions").header(DESTINATION, b.address().to_string()).body("{}");
        let response = request.send().await?;
        ensure!(response.status() == 200, "{}", response.status());
        ensure!(response.headers().get("x-warmroute-decision").is_none(), "the VM lives");
        served.push(response.json::<Value>().await?["served_by"].clone());
    }
    ensure!(served.contains(&json!(a.address())), "all of {} went to the spoofed host", served.len());
    proxy.stop().await
}

#[tokio::test]
async fn the_filters_input_headers_do_not_reach_the_upstream() -> Result<()> {
    let worker = Upstream::start().await?;
    let feed = ScriptedFeed::start(|_| Reply::Hold).await?;
    let proxy = ProxyOptions::new("inputs", &[worker.address()], feed.address())?.start().await?;
    let inputs = [
        ("x-warmroute-tokens", "1,2,3"),
        ("x-warmroute-tokens-base64", "AQAAAA=="),
        ("x-warmroute-block-hashes", "0123456789abcdef"),
        ("x-warmroute-model", "sim"),
        ("x-warmroute-cache-salt", "tenant"),
    ];
    let echo = proxy.send(&tokens(1, 32), &inputs).await?;
    for (name, _) in inputs {
        ensure!(echo.headers.get(name).is_none(), "{name} has reached the upstream: {echo:?}");
    }
    proxy.stop().await
}

#[tokio::test]
async fn after_an_internal_redirect_the_request_is_decided_anew() -> Result<()> {
    let (warm, other) = (Upstream::start().await?, Upstream::start().await?);
    let workers = [warm.address(), other.address()];
    let prompt = tokens(1, 320);
    let index = ScriptedIndex::new(101, 4, &workers).with(warm.address(), &prompt);
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let mut options = ProxyOptions::new("redirect", &workers, feed.address())?;
    options.edit = Some(|bootstrap| {
        let route = bootstrap
            .connection_manager("warmroute")?
            .pointer_mut("/route_config/virtual_hosts/0/routes/0/route");
        let route = route.and_then(Value::as_object_mut).context("no route")?;
        route.insert("internal_redirect_policy".to_owned(), json!({ "redirect_response_codes": [307] }));
        Ok(())
    });
    let proxy = options.start().await?;
    proxy.wait_until_steered_to(warm.address(), &prompt).await?;
    // The second time round the filter sees what it made of the request the first time; the path is one that it reads.
    for _ in 0..8 {
        let echo = proxy.send(&prompt, &[("x-redirect-to", "/generate")]).await?;
        ensure!(echo.served_by == warm.address(), "{echo:?}");
        ensure!(echo.headers.get(DESTINATION).is_none(), "{echo:?}");
    }
    // To a path that it does not read, the request is balanced, whatever was decided before.
    let mut served = std::collections::BTreeSet::new();
    for _ in 0..24 {
        served.insert(proxy.send(&prompt, &[("x-redirect-to", "/elsewhere")]).await?.served_by);
    }
    ensure!(served.len() == 2, "all went to {served:?}");
    proxy.stop().await
}
