//! The engines' gauges, over HTTP: scraped, held against what the proxies report, and passed on.
#![allow(clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests may panic")]

mod support;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use support::{Collector, eventually};
use warmroute_routing::choose::Load;
use warmroute_routing::loads::{FleetLoad, FleetRow, LoadReport, WorkerKey, path};

/// What an engine's page of metrics says; none: an error.
type Page = Arc<Mutex<Option<String>>>;

/// An engine's HTTP server, with its metrics at a path.
async fn serve(path: &str, page: &Page) -> WorkerKey {
    let page = Arc::clone(page);
    let metrics = move || {
        let page = page.lock().unwrap().clone();
        async move { page.ok_or(StatusCode::INTERNAL_SERVER_ERROR) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route(path, get(metrics));
    tokio::spawn(async { axum::serve(listener, router).await });
    WorkerKey { address, rank: Some(0) }
}

fn says(page: &Page, text: &str) {
    *page.lock().unwrap() = Some(text.to_owned());
}

fn entry(worker: WorkerKey, options: &str) -> String {
    format!("{{address: '{}', events: 'tcp://127.0.0.1:1'{options}}}", worker.address)
}

/// What a proxy is told that has so many requests of 10 blocks in flight at a worker.
async fn told(collector: &Collector, proxy: u64, own: (WorkerKey, u32)) -> Vec<FleetRow> {
    let load = Load { requests: own.1, prefill_tokens: 0, blocks: u64::from(own.1) * 10 };
    let report = LoadReport { proxy, position: 0, wait_ms: 0, rows: vec![(own.0, load)] };
    let url = format!("{}{}", collector.url, path("llama"));
    let response = reqwest::Client::new().post(url).body(report.encode()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    FleetLoad::decode(&response.bytes().await.unwrap()).unwrap().rows
}

fn of(rows: &[FleetRow], worker: WorkerKey) -> Option<FleetRow> {
    rows.iter().find(|row| row.worker == worker).copied()
}

#[tokio::test]
async fn what_an_engine_has_that_nobody_reports_is_passed_on_until_its_word_is_old() {
    let page = Page::default();
    says(
        &page,
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 4\n\
         vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 2\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5\n",
    );
    let worker = serve("/metrics", &page).await;
    let collector = Collector::start(&[entry(worker, "")], "gauges_interval_ms: 20").await;
    let unbooked = async |own: u32| {
        let engine = of(&told(&collector, 1, (worker, own)).await, worker).and_then(|row| row.engine)?;
        assert_eq!((engine.running, engine.waiting, engine.kv_permille), (4, 2, 500));
        assert!(engine.age_ms < 1_500, "{engine:?}");
        Some(engine.unbooked)
    };
    // As many requests as are not this proxy's, each as large as one of its own; those that wait are to be computed.
    for (own, prefill_blocks) in [(1, 20), (5, 10), (6, 0), (9, 0)] {
        let requests = 6_u32.saturating_sub(own);
        let expected =
            Load { requests, prefill_tokens: prefill_blocks * 2, blocks: u64::from(requests) * 10 };
        eventually(&format!("{expected:?}"), async || unbooked(own).await == Some(expected)).await;
    }
    eventually("five", async || unbooked(1).await.is_some_and(|load| load.requests == 5)).await;
    for (state, requests) in [("running", 4.0), ("waiting", 2.0), ("unbooked", 5.0)] {
        assert_eq!(collector.metric("engine_requests", &format!("state=\"{state}\"")).await, requests);
    }
    *page.lock().unwrap() = None;
    eventually("the engine's word to be forgotten", async || {
        of(&told(&collector, 1, (worker, 1)).await, worker).is_none()
    })
    .await;
    assert!(collector.metric("gauge_scrapes_total", "outcome=\"failed\"").await >= 1.0);
    assert!(!collector.get("/metrics").await.1.contains("engine_requests{"));
    says(&page, "vllm:num_requests_running 7\n");
    eventually("the engine to be heard again", async || {
        let row = of(&told(&collector, 1, (worker, 1)).await, worker);
        row.and_then(|row| row.engine).is_some_and(|engine| engine.running == 7)
    })
    .await;
    collector.stop().await;
}

#[tokio::test]
async fn each_rank_of_sglang_has_its_own_gauges() {
    let page = Page::default();
    says(
        &page,
        "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 1.0\n\
         sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"0\"} 8.0\n\
         sglang:num_queue_reqs{dp_rank=\"1\",tp_rank=\"0\"} 3.0\n\
         sglang:token_usage{dp_rank=\"1\",tp_rank=\"0\"} 0.9\n",
    );
    let first = serve("/metrics", &page).await;
    let second = WorkerKey { rank: Some(1), ..first };
    let options = "engine: sglang\n    gauges_interval_ms: 20";
    let collector = Collector::start(&[entry(first, ", data_parallel_size: 2")], options).await;
    eventually("both ranks", async || {
        let rows = told(&collector, 1, (first, 1)).await;
        let engines = [first, second].map(|worker| of(&rows, worker).and_then(|row| row.engine));
        let [Some(first), Some(second)] = engines else { return false };
        (first.running, first.waiting, first.unbooked.requests) == (1, 0, 0)
            && (second.running, second.waiting, second.kv_permille) == (8, 3, 900)
            && second.unbooked.requests == 11
    })
    .await;
    collector.stop().await;
}

#[tokio::test]
async fn tensorrt_llm_is_asked_at_its_own_path_and_nobody_where_it_is_off() {
    let page = Page::default();
    says(&page, "trtllm_num_requests_running 3\n");
    let worker = serve("/prometheus/metrics", &page).await;
    let options = "engine: trtllm\n    gauges_interval_ms: 20";
    let collector = Collector::start(&[entry(worker, "")], options).await;
    collector.metric_becomes("engine_requests", "state=\"running\"", 3.0).await;
    // Another configuration: the pool begins anew, without them.
    collector.reload(&[entry(worker, "")], "engine: trtllm\n    gauges_interval_ms: 0").await;
    assert!(!collector.get("/metrics").await.1.contains("engine_requests{"));
    assert_eq!(of(&told(&collector, 1, (worker, 1)).await, worker), None);
    collector.stop().await;
}
