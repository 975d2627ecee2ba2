//! Bodies of every size and speed.

#![allow(clippy::indexing_slicing, reason = "a scenario that is wrong fails")]

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::timeout;
use warmroute_e2e::client::completion;
use warmroute_e2e::proxy::Edit;
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{Proxy, ProxyOptions, RawClient, ScriptedFeed, Upstream, tokens, wait};

const SECOND: Duration = Duration::from_secs(1);

/// Envoy between two workers, with a feed that serves an index of them.
struct Scene {
    proxy: Proxy,
    workers: [SocketAddr; 2],
    _upstreams: [Upstream; 2],
    _feed: ScriptedFeed,
}

async fn scene(
    name: &str,
    filter: Value,
    edit: Option<Edit>,
    index: impl FnOnce(ScriptedIndex, [SocketAddr; 2]) -> ScriptedIndex,
) -> Result<Scene> {
    let upstreams = [Upstream::start().await?, Upstream::start().await?];
    let workers = [upstreams[0].address(), upstreams[1].address()];
    // The first worker holds a prompt that tells when the index is there.
    let sign = tokens(99, 64);
    let index = index(ScriptedIndex::new(101, 6, &workers).with(workers[0], &sign), workers);
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let mut options = ProxyOptions::new(name, &workers, feed.address())?;
    options.filter = filter;
    options.edit = edit;
    let proxy = options.start().await?;
    let list = sign.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    proxy.wait_for_decision("steered", &sign, &[("x-warmroute-tokens", &list)]).await?;
    Ok(Scene { proxy, workers, _upstreams: upstreams, _feed: feed })
}

fn head(length: usize) -> String {
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn bodies_of_5_and_20_megabytes_are_served_and_never_held_beyond_the_cap() -> Result<()> {
    let cap = 300_000;
    let prompt = tokens(1, 6_000_000);
    // The first worker and the second hold so much of it that the decision would wait for more than the cap.
    let warm = prompt[..200_000].to_vec();
    let scene = scene("large", json!({ "max_held_bytes": cap }), None, |index, workers| {
        index.with(workers[0], &warm).with(workers[1], &warm)
    })
    .await?;
    for (count, least) in [(850_000, 5_000_000), (3_500_000, 20_000_000)] {
        for prompt in [&prompt[..count], &tokens(2, count)] {
            let body = completion(prompt, 1).to_string();
            ensure!(body.len() >= least, "{} bytes", body.len());
            let length = body.len();
            let response =
                scene.proxy.client()?.post("/v1/completions").header("content-type", "application/json");
            let response = response.body(body).send().await?;
            ensure!(response.status() == 200, "{}", response.status());
            let echo: Value = response.json().await?;
            ensure!(echo["body_bytes"] == json!(length), "{} of {length}", echo["body_bytes"]);
        }
    }
    // Envoy gathers histograms every five seconds.
    wait::until_ok(20 * SECOND, "what was held to be counted", async || {
        let counted = scene.proxy.envoy.prometheus().await?;
        let at_most = |le| counted.sum("warmroute_held_bytes_bucket", &[("le", le)]);
        let all = counted.sum("warmroute_held_bytes_count", &[]);
        ensure!(all >= 4.0, "{all} bodies");
        // The cap, and what of one read of Envoy's came beyond it.
        ensure!(at_most("1800000") == all, "a body was held beyond the cap");
        ensure!(at_most("60000") < all, "no body was held up to the cap");
        Ok(())
    })
    .await?;
    scene.proxy.stop().await
}

#[tokio::test]
async fn of_two_workers_that_share_6000_tokens_the_one_with_2000_more_is_found() -> Result<()> {
    let prompt = tokens(1, 9_000);
    let (shared, more) = (prompt[..6_000].to_vec(), prompt[..8_000].to_vec());
    let scene = scene("deeper", json!({}), None, |index, workers| {
        index.with(workers[0], &shared).with(workers[1], &more)
    })
    .await?;
    for _ in 0..8 {
        let echo = scene.proxy.send(&prompt, &[]).await?;
        ensure!(echo.served_by == scene.workers[1], "{:?}", echo.decision);
    }
    scene.proxy.stop().await
}

#[tokio::test]
async fn a_cold_prompt_of_100000_tokens_is_decided_before_its_last_byte_is_sent() -> Result<()> {
    let worker = TcpListener::bind("127.0.0.1:0").await?;
    let feed_index = ScriptedIndex::new(101, 4, &[worker.local_addr()?]);
    let feed = ScriptedFeed::start(move |request| {
        if feed_index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(feed_index.all()) }
    })
    .await?;
    let workers = [worker.local_addr()?];
    let mut options = ProxyOptions::new("cold", &workers, feed.address())?;
    // The worker is no HTTP server: nobody else must call on it.
    options.edit = Some(|bootstrap| {
        for cluster in ["workers", "workers-plain"] {
            bootstrap.cluster(cluster)?.as_object_mut().context("no cluster")?.remove("health_checks");
        }
        Ok(())
    });
    let proxy = options.start().await?;
    wait::until_ok(20 * SECOND, "the index", async || {
        let copies = proxy.envoy.prometheus().await?.sum("warmroute_publisher_copies_total", &[]);
        ensure!(copies > 0.0, "{copies} copies");
        Ok(())
    })
    .await?;
    let body = completion(&tokens(1, 100_000), 1).to_string();
    let mut client = RawClient::connect(&proxy.envoy.url()).await?;
    client.send(head(body.len()).as_bytes()).await?;
    client.send(&body.as_bytes()[..16_384]).await?;
    // The rest is not sent, and yet the request has gone on.
    let (mut upstream, _) = timeout(10 * SECOND, worker.accept()).await.context("the request was held")??;
    let mut seen = vec![0; 1024];
    let count = timeout(10 * SECOND, upstream.read(&mut seen)).await.context("no request has come")??;
    ensure!(
        seen[..count].starts_with(b"POST /v1/completions"),
        "{}",
        String::from_utf8_lossy(&seen[..count])
    );
    drop(client);
    proxy.stop().await
}

#[tokio::test]
async fn a_slow_client_is_neither_freed_nor_forgotten() -> Result<()> {
    let prompt = tokens(1, 64);
    let warm = prompt.clone();
    let scene = scene("slow", json!({}), None, |index, workers| {
        // Both hold all of it: nothing can be decided before its end.
        index.with(workers[0], &warm).with(workers[1], &warm)
    })
    .await?;
    let body = completion(&prompt, 1).to_string();
    let (slow, rest) = body.split_at(4);
    let mut client = RawClient::connect(&scene.proxy.envoy.url()).await?;
    client.send(head(body.len()).as_bytes()).await?;
    for byte in slow.as_bytes() {
        client.send(&[*byte]).await?;
        ensure!(!client.hears_within(SECOND).await?, "it was freed, or refused");
    }
    client.send(rest.as_bytes()).await?;
    let answer = client.answer().await?;
    ensure!(answer.status == 200 && answer.text.contains("x-warmroute-decision: steered"), "{answer:?}");
    scene.proxy.stop().await
}

#[tokio::test]
async fn without_allow_on_headers_stop_iteration_requests_are_served_within_a_second_and_it_is_told_once()
-> Result<()> {
    let prompt = tokens(1, 64);
    let warm = prompt.clone();
    let without_it: Edit = |bootstrap| {
        bootstrap.filter()?.as_object_mut().context("no filter")?.remove("allow_on_headers_stop_iteration");
        Ok(())
    };
    let scene =
        scene("missing-flag", json!({}), Some(without_it), |index, workers| index.with(workers[0], &warm))
            .await?;
    for _ in 0..40 {
        let start = Instant::now();
        let echo = scene.proxy.send(&prompt, &[]).await?;
        ensure!(start.elapsed() < SECOND, "it took {:?}", start.elapsed());
        ensure!(echo.decision.as_deref() == Some("fallback reason=body_not_seen"), "{echo:?}");
    }
    let told = scene.proxy.envoy.log().matches("set allow_on_headers_stop_iteration: true").count();
    // Once for each of the two worker threads, at most.
    ensure!((1..=2).contains(&told), "told {told} times");
    scene.proxy.stop().await
}

#[tokio::test]
async fn chunked_bodies_with_and_without_trailers_and_expect_continue_are_steered() -> Result<()> {
    let prompt = tokens(1, 640);
    let warm = prompt.clone();
    let scene = scene("chunked", json!({}), None, |index, workers| index.with(workers[1], &warm)).await?;
    let body = completion(&prompt, 1).to_string();
    let common = "POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n";
    for (step, trailer) in [(1, ""), (7, "x-trailer: 1\r\n"), (1000, "x-trailer: 1\r\n"), (100_000, "")] {
        let mut request = format!("{common}transfer-encoding: chunked\r\n\r\n");
        for chunk in body.as_bytes().chunks(step) {
            write!(request, "{:x}\r\n{}\r\n", chunk.len(), std::str::from_utf8(chunk)?)?;
        }
        write!(request, "0\r\n{trailer}\r\n")?;
        let mut client = RawClient::connect(&scene.proxy.envoy.url()).await?;
        client.send(request.as_bytes()).await?;
        let answer = client.answer().await?;
        ensure!(
            answer.text.contains(&format!("steered worker={} ", scene.workers[1])),
            "chunks of {step}: {answer:?}"
        );
    }
    let mut client = RawClient::connect(&scene.proxy.envoy.url()).await?;
    let request = format!("{common}expect: 100-continue\r\ncontent-length: {}\r\n\r\n", body.len());
    client.send(request.as_bytes()).await?;
    ensure!(client.hears_within(5 * SECOND).await?, "no 100 Continue");
    ensure!(client.answer().await?.status == 100);
    client.send(body.as_bytes()).await?;
    let answer = client.answer().await?;
    ensure!(answer.text.contains("x-warmroute-decision: steered"), "{answer:?}");
    scene.proxy.stop().await
}

#[tokio::test]
async fn token_headers_of_70_kilobytes_are_read() -> Result<()> {
    let prompt = tokens(1, 12_000);
    let warm = prompt.clone();
    let scene = scene("long-header", json!({}), None, |index, workers| index.with(workers[1], &warm)).await?;
    let list = prompt.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    ensure!(list.len() > 70_000, "{} bytes", list.len());
    let echo = scene.proxy.send(&[1], &[("x-warmroute-tokens", &list)]).await?;
    ensure!(echo.served_by == scene.workers[1], "{:?}", echo.decision);
    ensure!(echo.headers.get("x-warmroute-tokens").is_none(), "the header has reached the upstream");
    scene.proxy.stop().await
}
