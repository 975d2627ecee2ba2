//! Steering by Envoy's `stateful_session` filter, which honours health.

#![allow(clippy::indexing_slicing, reason = "a scenario that is wrong fails")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{Bootstrap, ProxyOptions, ScriptedFeed, Upstream, ports, tokens, wait};

const DEADLINE: Duration = Duration::from_secs(30);

/// The shipped configuration, with a session in the header in place of the override.
fn by_session(bootstrap: &mut Bootstrap) -> Result<()> {
    let filters = bootstrap.connection_manager("warmroute")?.pointer_mut("/http_filters");
    let filters = filters.and_then(Value::as_array_mut).context("no filters")?;
    let session = json!({
        "name": "envoy.filters.http.stateful_session",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
            "session_state": {
                "name": "envoy.http.stateful_session.header",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState",
                    "name": "x-gateway-destination-endpoint",
                },
            },
        },
    });
    let metadata =
        filters.iter_mut().find(|filter| filter["name"] == "envoy.filters.http.header_to_metadata");
    *metadata.context("no header_to_metadata")? = session;
    let plain = bootstrap.cluster("workers-plain")?.get("load_balancing_policy").cloned();
    let workers = bootstrap.cluster("workers")?.as_object_mut().context("no cluster")?;
    workers.insert("load_balancing_policy".to_owned(), plain.context("no policy")?);
    Ok(())
}

#[tokio::test]
async fn a_session_steers_and_an_unhealthy_worker_is_not_taken() -> Result<()> {
    let (warm, other) = (Upstream::start().await?, Upstream::start().await?);
    let dead = ports::free()?;
    let workers = [warm.address(), other.address(), dead];
    let (prompt, lost) = (tokens(1, 320), tokens(2, 320));
    let index = ScriptedIndex::new(101, 4, &workers).with(warm.address(), &prompt).with(dead, &lost);
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let mut options = ProxyOptions::new("session", &workers, feed.address())?;
    options.filter = json!({ "steering": "stateful_session" });
    options.edit = Some(by_session);
    let proxy = options.start().await?;
    proxy.wait_until_steered_to(warm.address(), &prompt).await?;
    // A session is kept only with a host that Envoy knows to be healthy: none is before its first check.
    wait::until_ok(DEADLINE, "the health of all workers to be known", async || {
        let stats = proxy.envoy.stats("cluster.workers.membership_healthy").await?;
        ensure!(stats.values().sum::<u64>() == 2, "{stats:?}");
        Ok(())
    })
    .await?;
    for _ in 0..20 {
        let echo = proxy.send(&prompt, &[]).await?;
        ensure!(echo.served_by == warm.address(), "{echo:?}");
    }
    // No attempt is made at the dead one, and none is retried.
    let retries = async || {
        anyhow::Ok(proxy.envoy.stats("cluster.workers.upstream_rq_retry$").await?.values().sum::<u64>())
    };
    let before = retries().await?;
    for _ in 0..20 {
        let echo = proxy.send(&lost, &[]).await?;
        ensure!(echo.served_by != dead, "{echo:?}");
    }
    ensure!(retries().await? == before, "the dead worker was tried");
    proxy.stop().await
}
