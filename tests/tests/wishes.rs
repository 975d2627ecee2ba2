//! What requests wish of the choice, in the real Envoy.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{Proxy, ProxyOptions, ScriptedFeed, Upstream, ports, tokens, wait};

const DEADLINE: Duration = Duration::from_secs(20);
const SUBSET: &str = "x-gateway-destination-endpoint-subset";

/// Envoy before these workers, all of which hold the prompt but the last.
async fn start(name: &str, workers: &[SocketAddr], prompt: &[u32]) -> Result<(Proxy, ScriptedFeed)> {
    let mut index = ScriptedIndex::new(101, 4, workers);
    for worker in workers.iter().rev().skip(1) {
        index = index.with(*worker, prompt);
    }
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let mut options = ProxyOptions::new(name, workers, feed.address())?;
    options.filter = json!({
        "max_destinations": 3,
        "wish_headers": { "subset": SUBSET, "session": "x-session", "load_scale": "x-load-scale" },
    });
    let proxy = options.start().await?;
    wait::until_ok(DEADLINE, "the index", async || {
        let echo = proxy.send(prompt, &[]).await?;
        ensure!(echo.decision.as_deref().is_some_and(|text| text.starts_with("steered")), "{echo:?}");
        Ok(())
    })
    .await?;
    Ok((proxy, feed))
}

#[tokio::test]
async fn a_subset_bounds_the_choice_and_no_wish_reaches_an_engine() -> Result<()> {
    let upstreams = [Upstream::start().await?, Upstream::start().await?, Upstream::start().await?];
    let workers = upstreams.each_ref().map(Upstream::address);
    let prompt = tokens(1, 512);
    let (proxy, _feed) = start("subset", &workers, &prompt).await?;
    for worker in workers {
        for _ in 0..8 {
            let only = worker.to_string();
            let headers = [(SUBSET, only.as_str()), ("x-session", "s"), ("x-load-scale", "2")];
            let echo = proxy.send(&prompt, &headers).await?;
            ensure!(echo.served_by == worker, "{echo:?}");
            let headers = echo.headers.as_object().context("no headers")?;
            for (name, _) in [(SUBSET, ""), ("x-session", ""), ("x-load-scale", "")] {
                ensure!(!headers.contains_key(name), "{name} has reached the engine");
            }
        }
    }
    for nobody in ["127.0.0.1:1", "not a list", ""] {
        let echo = proxy.send(&prompt, &[(SUBSET, nobody)]).await?;
        ensure!(echo.decision.as_deref() == Some("fallback reason=subset"), "{echo:?}");
    }
    proxy.stop().await
}

#[tokio::test]
async fn a_session_stays_with_its_worker_whichever_thread_it_meets() -> Result<()> {
    let upstreams = [Upstream::start().await?, Upstream::start().await?, Upstream::start().await?];
    let workers = upstreams.each_ref().map(Upstream::address);
    let prompt = tokens(1, 512);
    let (proxy, _feed) = start("session-header", &workers, &prompt).await?;
    for session in ["a", "b", "c", "d"] {
        let first = proxy.send(&prompt, &[("x-session", session)]).await?.served_by;
        for _ in 0..16 {
            let echo = proxy.send(&prompt, &[("x-session", session)]).await?;
            ensure!(echo.served_by == first, "{session}: {echo:?}");
        }
    }
    proxy.stop().await
}

#[tokio::test]
async fn the_third_of_three_that_are_named_serves_where_two_refuse() -> Result<()> {
    let (third, bystander) = (Upstream::start().await?, Upstream::start().await?);
    let dead = [ports::free()?, ports::free()?];
    let workers = [dead[0], dead[1], third.address(), bystander.address()];
    let prompt = tokens(1, 512);
    let (proxy, _feed) = start("third", &workers, &prompt).await?;
    for _ in 0..20 {
        let echo = proxy.send(&prompt, &[]).await?;
        ensure!(echo.served_by == third.address(), "{echo:?}");
    }
    proxy.stop().await
}
