//! Health checks decide a worker's state, together with its events' connection.
#![allow(clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests may panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::json;
use support::engine::{FakeEngine, Replays};
use support::mirror::Mirror;
use support::{Collector, eventually};
use warmroute_routing::pool::WorkerState;

/// An engine's HTTP server, whose `/health` answers as it is told.
async fn serve(status: Arc<AtomicU16>) -> String {
    let health = move || {
        let status = status.load(Ordering::Relaxed);
        async move { StatusCode::from_u16(status).unwrap() }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async { axum::serve(listener, Router::new().route("/health", get(health))).await });
    address
}

#[tokio::test]
async fn a_worker_is_down_while_it_does_not_answer_or_its_events_are_lost() {
    let status = Arc::new(AtomicU16::new(200));
    let address = serve(Arc::clone(&status)).await;
    let mut engine = FakeEngine::start(Replays::WithTopic).await;
    let options = "health_interval_ms: 20";
    let collector = Collector::start(&[engine.worker(&address, true)], options).await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mut mirror = Mirror::new(&collector);
    let mut state_becomes = async |state| {
        eventually(&format!("{state:?}"), async || {
            mirror.catch_up().await;
            mirror.state(&address) == Some(state)
        })
        .await;
    };
    collector.metric_becomes("worker_healthy", "", 1.0).await;
    state_becomes(WorkerState::Up).await;
    status.store(503, Ordering::Relaxed);
    state_becomes(WorkerState::Down).await;
    assert_eq!(collector.metric("worker_healthy", "").await, 0.0);
    assert!(collector.metric("health_checks_total", "outcome=\"failed\"").await >= 2.0);
    status.store(200, Ordering::Relaxed);
    state_becomes(WorkerState::Up).await;
    // Healthy, but nothing tells what it has cached any more.
    engine.publish(json!([])).await;
    engine.die().await;
    state_becomes(WorkerState::Down).await;
    assert_eq!(collector.metric("worker_healthy", "").await, 1.0);
    engine.come_back().await;
    state_becomes(WorkerState::Up).await;
    collector.stop().await;
}

#[tokio::test]
async fn an_address_that_nobody_answers_at_is_down() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let engine = FakeEngine::start(Replays::WithTopic).await;
    let collector = Collector::start(&[engine.worker(&closed, true)], "health_interval_ms: 20").await;
    eventually("ready", async || collector.get("/readyz").await.0 == 200).await;
    let mut mirror = Mirror::new(&collector);
    eventually("down", async || {
        mirror.catch_up().await;
        mirror.state(&closed) == Some(WorkerState::Down)
    })
    .await;
    collector.stop().await;
}
