//! Full copies, generations, and publishers that die or lose their collector in the middle.
//!
//! The collector is scripted: only so can a copy stop exactly half-way.

#![allow(clippy::indexing_slicing, clippy::unreachable, reason = "a scenario that is wrong fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::http::StatusCode;
use warmroute_e2e::bootstrap::Publisher;
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{ProxyOptions, ScriptedFeed, Upstream, tokens, wait, workspace};

const DEADLINE: Duration = Duration::from_secs(30);
const BITS: u8 = 4;

async fn upstreams(count: usize) -> Result<(Vec<Upstream>, Vec<SocketAddr>)> {
    let mut started = Vec::new();
    for _ in 0..count {
        started.push(Upstream::start().await?);
    }
    let addresses = started.iter().map(Upstream::address).collect();
    Ok((started, addresses))
}

/// A feed that serves `indexes[n]`, n being what `now` holds, whole.
fn serve(
    indexes: Vec<ScriptedIndex>,
    now: Arc<AtomicU32>,
) -> impl Fn(warmroute_routing::feed::Request) -> Reply {
    move |request| {
        let index = &indexes[now.load(Ordering::SeqCst) as usize];
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    }
}

#[tokio::test]
async fn a_new_generation_takes_over_at_once_and_whole() -> Result<()> {
    let (_running, workers) = upstreams(3).await?;
    let prompt = tokens(1, 320);
    let indexes: Vec<_> = (0..3)
        .map(|i| ScriptedIndex::new(100 + i as u64, BITS, &workers).with(workers[i], &prompt))
        .collect();
    let now = Arc::new(AtomicU32::new(0));
    let feed = ScriptedFeed::start(serve(indexes, Arc::clone(&now))).await?;
    let proxy = ProxyOptions::new("generations", &workers, feed.address())?.start().await?;
    for i in 0..3 {
        now.store(i, Ordering::SeqCst);
        proxy.wait_until_steered_to(workers[i as usize], &prompt).await?;
    }
    proxy.stop().await
}

/// Runs a copy of generation 2 that its publisher does not survive. Until generation 3 is there whole, requests go where
/// generation 1 said; nothing of generation 2 is ever seen.
async fn a_publisher_dies_half_way(name: &str, publisher: Publisher) -> Result<()> {
    let (_running, workers) = upstreams(3).await?;
    let [first, second, third] = workers[..] else { unreachable!() };
    let prompt = tokens(1, 320);
    let one = ScriptedIndex::new(101, BITS, &workers).with(first, &prompt);
    let two = ScriptedIndex::new(102, BITS, &workers).with(second, &prompt);
    let three = ScriptedIndex::new(103, BITS, &workers).with(third, &prompt);

    let restarted = Arc::new(AtomicBool::new(false));
    let crashed = Arc::new(AtomicBool::new(false));
    let whole_again = Arc::new(AtomicBool::new(false));
    let flags = (Arc::clone(&restarted), Arc::clone(&crashed), Arc::clone(&whole_again));
    let half = two.page_count() / 2;
    let feed = ScriptedFeed::start(move |request| {
        let (restarted, crashed, whole_again) = &flags;
        if whole_again.load(Ordering::SeqCst) {
            return if three.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(three.all()) };
        }
        if !restarted.load(Ordering::SeqCst) {
            return if one.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(one.all()) };
        }
        if crashed.load(Ordering::SeqCst) {
            return Reply::Status(StatusCode::SERVICE_UNAVAILABLE);
        }
        if request.cursor.next_page == half {
            crashed.store(true, Ordering::SeqCst);
            return Reply::Bytes(b"warmroute-fault: panic".to_vec());
        }
        Reply::Bytes(two.pages(0, half))
    })
    .await?;

    let mut options = ProxyOptions::new(name, &workers, feed.address())?;
    options.plugin = workspace::faulty_plugin()?;
    options.publisher = publisher;
    let proxy = options.start().await?;
    proxy.wait_until_steered_to(first, &prompt).await?;

    restarted.store(true, Ordering::SeqCst);
    let before = feed.requests().len();
    // It crashes, and a successor is refused while the collector is not ready.
    wait::until(DEADLINE, "the crash and a successor", async || {
        let served = proxy.send(&prompt, &[]).await.ok()?.served_by;
        assert_ne!(served, second, "half a generation was used");
        (crashed.load(Ordering::SeqCst) && feed.requests().len() > before + 3).then_some(())
    })
    .await?;
    let successors = feed.requests();
    let last = successors.last().map(|request| request.cursor);
    ensure!(last.is_some_and(|cursor| cursor.generation.0 == 101), "the successor goes on from {last:?}");
    proxy.wait_until_steered_to(first, &prompt).await?;

    whole_again.store(true, Ordering::SeqCst);
    proxy.wait_until_steered_to(third, &prompt).await?;
    ensure!(proxy.envoy.log().contains("panicked at"), "no publisher has died");
    proxy.stop().await
}

#[tokio::test]
async fn the_old_index_serves_when_a_singleton_dies_half_way_through_a_copy_and_a_worker_takes_over()
-> Result<()> {
    a_publisher_dies_half_way("singleton-dies", Publisher::Shipped).await
}

#[tokio::test]
async fn the_old_index_serves_when_an_elected_worker_dies_half_way_through_a_copy() -> Result<()> {
    a_publisher_dies_half_way("worker-dies", Publisher::Worker).await
}

#[tokio::test]
async fn answers_that_are_no_answers_change_nothing() -> Result<()> {
    let (_running, workers) = upstreams(2).await?;
    let prompt = tokens(1, 320);
    let one = ScriptedIndex::new(101, BITS, &workers).with(workers[0], &prompt);
    let two = ScriptedIndex::new(102, BITS, &workers).with(workers[1], &prompt);
    let turn = Arc::new(AtomicU32::new(0));
    let (next, healed) = (Arc::clone(&turn), Arc::new(AtomicBool::new(false)));
    let heal = Arc::clone(&healed);
    let feed = ScriptedFeed::start(move |request| {
        if heal.load(Ordering::SeqCst) {
            return if two.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(two.all()) };
        }
        if !one.is_known_to(&request) {
            return Reply::Bytes(one.all());
        }
        let whole = two.all();
        match next.fetch_add(1, Ordering::SeqCst) % 6 {
            0 => Reply::Bytes(vec![]),
            1 => Reply::Bytes(whole[..whole.len() - 1].to_vec()),
            2 => Reply::Bytes(b"<html>502 Bad Gateway</html>".to_vec()),
            3 => Reply::Status(StatusCode::INTERNAL_SERVER_ERROR),
            4 => Reply::Bytes([whole.as_slice(), b"x"].concat()),
            _ => Reply::Status(StatusCode::NOT_FOUND),
        }
    })
    .await?;
    let proxy = ProxyOptions::new("bad-answers", &workers, feed.address())?.start().await?;
    proxy.wait_until_steered_to(workers[0], &prompt).await?;
    wait::until(DEADLINE, "each bad answer to be given", async || {
        (turn.load(Ordering::SeqCst) >= 6).then_some(())
    })
    .await?;
    let echo = proxy.send(&prompt, &[]).await?;
    ensure!(echo.served_by == workers[0], "{echo:?}");
    healed.store(true, Ordering::SeqCst);
    proxy.wait_until_steered_to(workers[1], &prompt).await?;
    proxy.stop().await
}
