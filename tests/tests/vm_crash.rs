//! What a crash of the plugin's VM costs.

#![allow(clippy::indexing_slicing, reason = "a scenario that is wrong fails")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{ProxyOptions, ScriptedFeed, Upstream, tokens, wait, workspace};

const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn after_a_crash_requests_are_served_and_steered_again_and_no_load_is_left_behind() -> Result<()> {
    let (a, b) = (Upstream::start().await?, Upstream::start().await?);
    let workers = [a.address(), b.address()];
    let prompt = tokens(1, 320);
    // Both hold all of it: load decides between them.
    let index = ScriptedIndex::new(101, 4, &workers).with(a.address(), &prompt).with(b.address(), &prompt);
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let mut options = ProxyOptions::new("vm-crash", &workers, feed.address())?;
    options.plugin = workspace::faulty_plugin()?;
    options.concurrency = 1;
    let proxy = options.start().await?;
    proxy.wait_for_decision("steered", &prompt, &[]).await?;
    // A VM that crashes sooner after its start than the back-off is built anew only when that is over.
    tokio::time::sleep(Duration::from_millis(1500)).await;

    // Three requests are under way when the VM crashes, at a request of somebody else's.
    let delay = [("x-delay-ms", "2000")];
    let under_way = async {
        tokio::join!(proxy.send(&prompt, &delay), proxy.send(&prompt, &delay), proxy.send(&prompt, &delay))
    };
    let crash = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let _ = proxy.send(&prompt, &[("x-warmroute-fault", "panic")]).await;
        // The next request is served.
        proxy.send(&prompt, &[]).await
    };
    let ((first, second, third), next) = tokio::join!(under_way, crash);
    ensure!(proxy.envoy.log().contains("panicked at"), "no VM has died");
    next.context("the next request")?;
    // Those under way in the VM that died are Envoy's to answer: it gives each a 503 when its response comes.
    drop([first, second, third]);

    proxy.wait_for_decision("steered", &prompt, &[]).await?;
    wait::until_ok(DEADLINE, "both workers to have the same share", async || {
        let mut shares: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        for _ in 0..20 {
            *shares.entry(proxy.send(&prompt, &[]).await?.served_by).or_default() += 1;
        }
        ensure!(
            workers.iter().all(|worker| (8..=12).contains(shares.get(worker).unwrap_or(&0))),
            "{shares:?}"
        );
        Ok(())
    })
    .await?;
    proxy.stop().await
}
