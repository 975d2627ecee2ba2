//! The blocks of text and chat prompts, from a model's files and from an engine.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use support::{Collector, eventually};
use warmroute_routing::hash::{Namespace, sequence_hashes};
use warmroute_routing::prompt_blocks::{Extent, MEDIA_TYPE, PromptBlocks};

const WORKER: &str = r#"{address: "127.0.0.1:1", events: "tcp://127.0.0.1:1"}"#;

/// The small model of `warmroute-prompts`, and one recorded request with its tokens.
fn model() -> String {
    format!("{}/../prompts/tests/data/small", env!("CARGO_MANIFEST_DIR"))
}

fn recorded(path: &str) -> (String, Vec<u32>) {
    let cases = std::fs::read_to_string(format!("{}/cases.jsonl", model())).unwrap();
    let mut cases = cases.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let case = cases
        .find(|case| {
            case["path"] == path
                && case["tokens"].is_array()
                && !case["body"].as_str().unwrap().contains("chat_template\"")
        })
        .unwrap();
    (case["body"].as_str().unwrap().to_owned(), serde_json::from_value(case["tokens"].clone()).unwrap())
}

async fn ask(collector: &Collector, query: &str, accept: &str, body: String) -> (u16, Vec<u8>) {
    let url = format!("{}/v1/prompt-blocks?{query}", collector.url);
    let request = reqwest::Client::new().post(url).header("accept", accept).body(body);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.bytes().await.unwrap().to_vec())
}

async fn ready(collector: &Collector, source: &str) {
    eventually("the model's files are read", async || {
        let (_, report) = collector.get("/v1/pools/llama/workers").await;
        serde_json::from_str::<Value>(&report).unwrap()["prompts"]["source"] == source
    })
    .await;
}

/// An engine that answers `/tokenize` with the tokens it is told, and counts how often.
async fn engine(tokens: Vec<u32>) -> (String, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let tokenize = move |Json(_): Json<Value>| async move {
        count.fetch_add(1, Ordering::Relaxed);
        Json(json!({ "count": tokens.len(), "tokens": tokens }))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let app = Router::new().route("/tokenize", post(tokenize));
    tokio::spawn(async { axum::serve(listener, app).await });
    (authority, asked)
}

#[tokio::test]
async fn a_chat_gets_the_blocks_of_its_tokens_in_its_namespace() {
    let options = format!("base_models: [m]\n    prompts: {{model: \"{}\"}}", model());
    let collector = Collector::start(&[WORKER.to_owned()], &options).await;
    ready(&collector, "local").await;
    let (body, tokens) = recorded("/v1/chat/completions");
    let chat = "pool=llama&path=/v1/chat/completions";
    let (status, bytes) = ask(&collector, chat, MEDIA_TYPE, body.clone()).await;
    let blocks = PromptBlocks::decode(&bytes).unwrap();
    assert_eq!((status, blocks.token_count as usize, blocks.tokens), (200, tokens.len(), None));
    assert_eq!((blocks.extent, blocks.block_size), (Extent::Whole, 2));
    assert_eq!(blocks.hashes, sequence_hashes(&tokens, 2, Namespace::default()));

    let salted = body.replacen("\"model\": \"m\"", "\"model\": \"ad1\", \"cache_salt\": \"s\"", 1);
    let (_, bytes) = ask(&collector, &format!("{chat}&tokens=true"), MEDIA_TYPE, salted).await;
    let blocks = PromptBlocks::decode(&bytes).unwrap();
    assert_eq!(blocks.hashes, sequence_hashes(&tokens, 2, Namespace::new(Some("ad1"), Some("s"))));
    assert_eq!(blocks.tokens.as_ref(), Some(&tokens));

    let (_, text) = ask(&collector, chat, "application/json", body).await;
    let shown: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (&shown["tokens"], &shown["source"], &shown["whole"]),
        (&json!(tokens.len()), &json!("local"), &json!(true))
    );
    assert_eq!(
        shown["blocks"][0],
        format!("{:016x}", sequence_hashes(&tokens, 2, Namespace::default())[0].0)
    );
    assert!(
        collector.metric("prompt_cached_tokens_total", "llama").await > 0.0,
        "the same chat was asked for thrice"
    );
    collector.stop().await;
}

#[tokio::test]
async fn what_has_no_prompt_is_refused_with_its_reason() {
    let options = format!("prompts: {{model: \"{}\"}}", model());
    let collector = Collector::start(&[WORKER.to_owned()], &options).await;
    ready(&collector, "local").await;
    for (query, body, status, says) in [
        ("pool=nowhere&path=/v1/completions", "{}", 404, "nowhere"),
        ("pool=llama", "{}", 400, "path"),
        ("pool=llama&path=/v1/embeddings", "{}", 422, "/v1/embeddings"),
        ("pool=llama&path=/v1/completions", "{", 400, "EOF"),
        (
            "pool=llama&path=/v1/responses",
            r#"{"input":"a","previous_response_id":"r"}"#,
            422,
            "previous_response_id",
        ),
        ("pool=llama&path=/v1/completions", &"x".repeat(9 << 20), 413, "limit"),
    ] {
        let (got, text) = ask(&collector, query, "*/*", body.to_owned()).await;
        let text = String::from_utf8_lossy(&text);
        assert!(got == status && text.contains(says), "{query}: {got} {text}");
    }
    assert_eq!(collector.metric("prompt_requests_total", "malformed").await, 1.0);
    collector.stop().await;
}

#[tokio::test]
async fn an_engine_is_asked_where_there_are_no_files() {
    let (engine, asked) = engine(vec![7, 8, 9]).await;
    let options = format!("prompts: {{engine: \"{engine}\"}}");
    let collector = Collector::start(&[WORKER.to_owned()], &options).await;
    let body = r#"{"prompt":"hi"}"#.to_owned();
    let (status, bytes) =
        ask(&collector, "pool=llama&path=/v1/completions&tokens=true", MEDIA_TYPE, body).await;
    let blocks = PromptBlocks::decode(&bytes).unwrap();
    assert_eq!((status, blocks.tokens, asked.load(Ordering::Relaxed)), (200, Some(vec![7, 8, 9]), 1));
    let image = r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}"#;
    let (status, _) = ask(&collector, "pool=llama&path=/v1/chat/completions", "*/*", image.to_owned()).await;
    assert_eq!(status, 502);
    collector.stop().await;
}

#[tokio::test]
async fn whoever_hangs_up_is_counted_and_takes_no_place() {
    // An engine that never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = format!("prompts: {{engine: \"{}\"}}", silent.local_addr().unwrap());
    let collector = Collector::start(&[WORKER.to_owned()], &options).await;
    let url = format!("{}/v1/prompt-blocks?pool=llama&path=/v1/completions", collector.url);
    // One more than may be there at once.
    let count = std::thread::available_parallelism().map_or(1, usize::from) * 17 + 1;
    let mut engines = Vec::new();
    for _ in 0..count {
        let asked = tokio::spawn(reqwest::Client::new().post(&url).body(r#"{"prompt":"a"}"#).send());
        engines.push(silent.accept().await.unwrap());
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
    }
    collector.metric_becomes("prompt_requests_total", "abandoned", count as f64).await;
    assert_eq!(collector.metric("prompt_requests_total", "busy").await, 0.0);
    collector.stop().await;
}

#[tokio::test]
async fn files_that_differ_from_the_engine_are_reported_and_not_used() {
    let (engine, _) = engine(vec![7, 8, 9]).await;
    let options =
        format!("prompts: {{model: \"{}\", engine: \"{engine}\", check_interval_ms: 100}}", model());
    let collector = Collector::start(&[WORKER.to_owned()], &options).await;
    collector.metric_becomes("prompt_tokens_differ", "llama", 1.0).await;
    ready(&collector, "engine").await;
    let body = r#"{"prompt":"hi"}"#.to_owned();
    let (_, text) = ask(&collector, "pool=llama&path=/v1/completions", "*/*", body).await;
    let shown: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&shown["source"], &shown["tokens"]), (&json!("engine"), &json!(3)));
    assert!(collector.metric("prompt_comparisons_total", "different").await > 0.0);
    let (_, report) = collector.get("/v1/pools/llama/workers").await;
    assert!(report.contains("at token 0"), "{report}");
    collector.stop().await;
}

#[tokio::test]
async fn the_command_line_holds_files_against_an_engine() {
    let (body, tokens) = recorded("/v1/completions");
    let (right, _) = engine(tokens.clone()).await;
    let dir = std::env::temp_dir().join(format!("warmroute-tokenize-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (config, request) = (dir.join("collector.yaml"), dir.join("body.json"));
    std::fs::write(&request, body).unwrap();
    let text = format!(
        "pools:\n- name: llama\n  block_size: 2\n  prompts: {{model: \"{}\", engine: \"{right}\"}}\n  workers: [{WORKER}]\n",
        model()
    );
    std::fs::write(&config, text).unwrap();
    let run = async |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warmroute-collector"));
        command.arg("tokenize").arg("--config").arg(&config).args(more);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let of_request = ["--path", "/v1/completions", "--body", request.to_str().unwrap()];
    let (code, out) = run(&of_request).await;
    assert_eq!((code, serde_json::from_str::<Vec<u32>>(&out).unwrap()), (Some(0), tokens));
    let (code, out) = run(&[&of_request[..], &["--check"]].concat()).await;
    assert_eq!((code, out.as_str()), (Some(0), "llama\t/v1/completions\tequal\n"));
    let (code, out) = run(&["--check"]).await;
    assert!(code == Some(1) && out.contains("different at token"), "{code:?} {out}");
    std::fs::remove_dir_all(dir).unwrap();
}
