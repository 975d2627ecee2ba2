//! `POST /v1/completions`.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{start, tokens};

/// The JSON of each server-sent event, and whether `[DONE]` came last.
fn sse(text: &str) -> (Vec<Value>, bool) {
    let mut data: Vec<&str> = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    let done = data.last() == Some(&"[DONE]");
    if done {
        data.pop();
    }
    (data.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect(), done)
}

#[tokio::test]
async fn answers_with_text_ids_and_usage() {
    let (server, client) = start(&[]).await;
    let body = json!({ "model": "sim", "prompt": tokens(0, 10), "max_tokens": 3, "return_token_ids": true });
    let answer = client.complete(&body).await;
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["model"], "sim");
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"].as_str().unwrap().len(), 3);
    assert_eq!(choice["token_ids"].as_array().unwrap().len(), 3);
    assert_eq!(choice["prompt_token_ids"], json!(tokens(0, 10)));
    assert_eq!(choice["finish_reason"], "length");
    let usage = json!({
        "prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13, "prompt_tokens_details": { "cached_tokens": 0 },
    });
    assert_eq!(answer["usage"], usage);
    server.stop().await;
}

#[tokio::test]
async fn reports_cached_tokens() {
    let (server, client) = start(&["--lora", "ad1"]).await;
    assert_eq!(client.cached_tokens(&tokens(0, 10)).await, 0);
    assert_eq!(client.cached_tokens(&tokens(0, 10)).await, 8);
    assert_eq!(client.cached_tokens(&tokens(0, 8)).await, 4, "a fully cached prompt computes its last block");
    for other in [json!({ "model": "ad1" }), json!({ "cache_salt": "tenant" })] {
        let mut body = json!({ "prompt": tokens(0, 10), "max_tokens": 1 });
        body.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        let usage = |answer: Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        assert_eq!(usage(client.complete(&body).await), Some(0), "another namespace: {other}");
        assert_eq!(usage(client.complete(&body).await), Some(8));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_conversation_in_text_keeps_its_prefix() {
    let (server, client) = start(&[]).await;
    let first = "what is the weather like?";
    let answer = client.complete(&json!({ "prompt": first, "max_tokens": 8 })).await;
    let second = format!("{first}{} and tomorrow?", answer["choices"][0]["text"].as_str().unwrap());
    let answer = client.complete(&json!({ "prompt": second, "max_tokens": 1 })).await;
    // 25 + 8 tokens, of which the last was not computed: 8 full blocks of 4.
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 32);
    server.stop().await;
}

#[tokio::test]
async fn several_prompts_give_a_choice_each() {
    let (server, client) = start(&[]).await;
    let answer = client.complete(&json!({ "prompt": [tokens(0, 5), tokens(100, 6)], "max_tokens": 2 })).await;
    let indices: Vec<_> =
        answer["choices"].as_array().unwrap().iter().map(|choice| choice["index"].clone()).collect();
    assert_eq!(indices, [0, 1]);
    assert_eq!(answer["usage"]["total_tokens"], 15);
    server.stop().await;
}

#[tokio::test]
async fn streams_each_token_then_usage_then_done() {
    let (server, client) = start(&["--decode-ms-per-token", "1"]).await;
    let mut body = json!({ "prompt": tokens(0, 10), "max_tokens": 4 });
    let whole = client.complete(&body).await;
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    let response = client.send("/v1/completions", &body).await;
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let (events, done) = sse(&response.text().await.unwrap());
    assert!(done);
    let [tokens @ .., last] = &events[..] else { panic!("no events") };
    assert_eq!(tokens.len(), 4);
    let text: String = tokens.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, whole["choices"][0]["text"].as_str().unwrap(), "the output depends on the prompt alone");
    let reasons: Vec<_> = tokens.iter().map(|event| event["choices"][0]["finish_reason"].clone()).collect();
    assert_eq!(reasons, [Value::Null, Value::Null, Value::Null, "length".into()]);
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 4);
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 8);
    server.stop().await;
}

#[tokio::test]
async fn a_stream_without_options_has_no_usage() {
    let (server, client) = start(&[]).await;
    let body = json!({ "prompt": [[1, 2], [3, 4]], "max_tokens": 2, "stream": true, "stream_options": null });
    let (events, done) = sse(&client.send("/v1/completions", &body).await.text().await.unwrap());
    assert!(done);
    assert_eq!(events.len(), 4);
    assert!(events.iter().all(|event| event.get("usage").is_none()));
    server.stop().await;
}

#[tokio::test]
async fn refuses_with_openai_errors() {
    let (server, client) = start(&["--num-blocks", "4"]).await;
    for (body, status) in [
        (json!({ "model": "other", "prompt": [1] }), 404),
        (json!({ "prompt": [-1] }), 400),
        (json!({ "prompt": [] }), 400),
        (json!({ "max_tokens": 1 }), 400),
        (json!({ "prompt": [1], "max_tokens": 0 }), 400),
        (json!({ "prompt": [1], "n": 2 }), 400),
        (json!({ "prompt": tokens(0, 17), "max_tokens": 1 }), 400),
        (json!({ "prompt": [1], "max_tokens": u64::MAX }), 400),
        (json!("no object"), 400),
    ] {
        let (answered, answer) = client.post("/v1/completions", &body).await;
        assert_eq!(answered.as_u16(), status, "{body}");
        assert_eq!(answer["error"]["code"], status, "{body}");
        assert!(answer["error"]["message"].is_string() && answer["error"]["type"].is_string());
    }
    server.stop().await;
}

#[tokio::test]
async fn refuses_more_than_it_may_queue() {
    let flags = ["--max-running", "1", "--max-waiting", "1", "--base-ms", "60000"];
    let (server, client) = start(&flags).await;
    let body = json!({ "prompt": [[1], [2], [3]], "max_tokens": 1 });
    let (status, answer) = client.post("/v1/completions", &body).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    assert_eq!(client.metric("vllm:num_requests_running").await, 0.0, "all or none");
    server.stop().await;
}

#[tokio::test]
async fn every_answer_names_the_engine() {
    let (server, client) = start(&[]).await;
    let listen = server.addresses().listen.to_string();
    for path in ["/health", "/v1/models", "/metrics", "/nowhere"] {
        assert_eq!(client.get(path).await.headers()["x-simengine"], listen, "{path}");
    }
    let refused = client.send("/v1/completions", &json!({})).await;
    assert_eq!(refused.headers()["x-simengine"], listen);
    server.stop().await;
}
