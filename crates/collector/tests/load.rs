//! Load across proxies, over HTTP.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod support;

use std::time::Duration;

use reqwest::StatusCode;
use support::{Collector, eventually};
use warmroute_routing::choose::Load;
use warmroute_routing::loads::{FleetLoad, LoadReport, MAX_REPORT_BYTES, WorkerKey, path};

const WORKER: &str = "{address: '10.0.0.1:8000', events: 'tcp://127.0.0.1:1'}";

fn worker() -> WorkerKey {
    WorkerKey { address: "10.0.0.1:8000".parse().unwrap(), rank: Some(0) }
}

/// A proxy that has so many requests in flight.
fn report(proxy: u64, position: u64, requests: u32, wait_ms: u32) -> LoadReport {
    let load = Load { requests, prefill_tokens: 0, blocks: 0 };
    let rows = if requests == 0 { vec![] } else { vec![(worker(), load)] };
    LoadReport { proxy, position, wait_ms, rows }
}

async fn post(url: String, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
    let response = reqwest::Client::new().post(url).body(body).send().await.unwrap();
    (response.status(), response.bytes().await.unwrap().to_vec())
}

async fn exchange(url: String, report: LoadReport) -> Option<FleetLoad> {
    match post(url, report.encode()).await {
        (StatusCode::OK, bytes) => Some(FleetLoad::decode(&bytes).unwrap()),
        (StatusCode::NO_CONTENT, _) => None,
        (status, bytes) => panic!("{status}: {}", String::from_utf8_lossy(&bytes)),
    }
}

fn requests(load: &FleetLoad) -> u32 {
    load.rows.iter().map(|row| row.others.requests).sum()
}

#[tokio::test]
async fn a_proxy_is_told_at_once_what_another_has_in_flight_and_when_it_has_ended() {
    let collector = Collector::start(&[WORKER.to_owned()], "").await;
    let url = format!("{}{}", collector.url, path("llama"));
    // Not even a pool that is not ready keeps it back.
    assert_eq!(collector.get("/readyz").await.0, 503);
    let first = exchange(url.clone(), report(1, 0, 0, 1000)).await.unwrap();
    assert_eq!(requests(&first), 0);
    for expected in [3, 5, 0] {
        let waiting = tokio::spawn(exchange(url.clone(), report(1, first.position, 0, 60_000)));
        exchange(url.clone(), report(2, 0, expected, 0)).await.unwrap();
        // One that was answered before the change is asked again.
        let mut told = waiting.await.unwrap().unwrap();
        while requests(&told) != expected {
            told = exchange(url.clone(), report(1, told.position, 0, 60_000)).await.unwrap();
        }
    }
    assert!(collector.metric("proxies", "llama").await == 2.0);
    collector.stop().await;
}

#[tokio::test]
async fn a_new_report_takes_the_place_of_the_one_that_waits() {
    let collector = Collector::start(&[WORKER.to_owned()], "").await;
    let url = format!("{}{}", collector.url, path("llama"));
    let position = exchange(url.clone(), report(1, 0, 1, 0)).await.unwrap().position;
    let old = tokio::spawn(exchange(url.clone(), report(1, position, 1, 1000)));
    eventually("the new report to supersede the old", async || {
        exchange(url.clone(), report(1, position, 2, 0)).await;
        collector.metric("load_reports_total", "superseded").await >= 1.0
    })
    .await;
    assert_eq!(old.await.unwrap(), None);
    assert_eq!(requests(&exchange(url.clone(), report(2, 0, 0, 0)).await.unwrap()), 2);
    collector.stop().await;
}

#[tokio::test]
async fn an_answer_without_news_comes_when_its_wait_is_over() {
    let collector = Collector::start(&[WORKER.to_owned()], "").await;
    let url = format!("{}{}", collector.url, path("llama"));
    let position = exchange(url.clone(), report(1, 0, 1, 0)).await.unwrap().position;
    let begun = tokio::time::Instant::now();
    let told = exchange(url.clone(), report(1, position, 1, 200)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(told.position, position);
    collector.stop().await;
}

#[tokio::test]
async fn what_is_no_report_is_refused_and_changes_nothing() {
    let collector = Collector::start(&[WORKER.to_owned()], "").await;
    let url = format!("{}{}", collector.url, path("llama"));
    let mut another_version = report(1, 0, 1, 0).encode();
    another_version[4] = 2;
    for (body, status) in [
        (vec![], StatusCode::BAD_REQUEST),
        (b"WRLRxx".to_vec(), StatusCode::BAD_REQUEST),
        (another_version, StatusCode::BAD_REQUEST),
        (vec![0; MAX_REPORT_BYTES + 1], StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        assert_eq!(post(url.clone(), body).await.0, status);
    }
    let unknown = format!("{}{}", collector.url, path("nobody"));
    assert_eq!(post(unknown, report(1, 0, 1, 0).encode()).await.0, StatusCode::NOT_FOUND);
    assert_eq!(requests(&exchange(url, report(2, 0, 0, 0)).await.unwrap()), 0);
    assert!(collector.metric("load_reports_total", "bad_report").await == 3.0);
    collector.stop().await;
}
