//! The second turn of a long conversation, from body to block hashes, beside tokenizing it whole. `cargo xtask bench prompts`.
//!
//! Usage: `second_turn MODEL_DIR TOKENS REPEATS`. Prints one line of JSON.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a program for whoever measures")]

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warmroute_prompts::{Model, Options, Rendered, Request};
use warmroute_routing::hash::{Namespace, sequence_hashes};

const WORDS: [&str; 24] = [
    "the", "request", "goes", "to", "worker", "whose", "cache", "holds", "most", "of", "its", "prompt",
    "because", "prefill", "costs", "42.5", "ms", "naïve", "Größe", "(see", "above);", "function", "return",
    "tokens",
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (folder, tokens, repeats): (_, usize, usize) =
        (Path::new(&arguments[1]), arguments[2].parse().unwrap(), arguments[3].parse().unwrap());
    let options = Options { cache_bytes: 256 << 20, ..Options::default() };
    let model = Model::load(folder, options).unwrap();
    let mut state = 1;
    let chat = measure(&model, tokens, repeats, &mut state, |messages| {
        ("/v1/chat/completions", json!({ "messages": messages }))
    });
    let text = measure(&model, tokens, repeats, &mut state, |messages| {
        let texts = messages.iter().map(|message| format!("{}\n", message["content"].as_str().unwrap()));
        ("/v1/completions", json!({ "prompt": texts.collect::<String>() }))
    });
    println!("{}", json!({ "chat": chat, "text": text }));
}

/// Grows a conversation to so many tokens, then measures turns that nobody has seen.
fn measure(
    model: &Model,
    tokens: usize,
    repeats: usize,
    state: &mut u64,
    request: impl Fn(&[Value]) -> (&'static str, Value),
) -> Value {
    let mut messages = vec![];
    loop {
        let role = if messages.len() % 2 == 0 { "user" } else { "assistant" };
        messages.push(json!({ "role": role, "content": words(state, 150) }));
        let (path, body) = request(&messages);
        let made = model.prompt(&Request::parse(path, body.to_string().as_bytes()).unwrap(), 0).unwrap();
        if made.tokens.len() >= tokens && role == "assistant" {
            break;
        }
    }
    let (mut turns, mut wholes, mut count, mut bytes) = (vec![], vec![], 0, 0);
    for _ in 0..repeats {
        let mut turn = messages.clone();
        turn.push(json!({ "role": "user", "content": words(state, 40) }));
        let (path, body) = request(&turn);
        let body = body.to_string();
        let begun = Instant::now();
        let parsed = Request::parse(path, body.as_bytes()).unwrap();
        let rendered = model.render(&parsed, 0).unwrap();
        let prompt = model.tokenize(&rendered, &|| true).unwrap();
        let hashes = sequence_hashes(&prompt.tokens, 16, Namespace::default());
        turns.push(begun.elapsed());
        std::hint::black_box(hashes);
        let Rendered::Text { text, special_tokens, .. } = &rendered else { return Value::Null };
        let begun = Instant::now();
        let whole = model.tokenizer().encode_whole(text, *special_tokens).unwrap();
        wholes.push(begun.elapsed());
        assert_eq!(whole, prompt.tokens);
        (count, bytes) = (whole.len(), body.len());
    }
    let (turn, whole) = (median(&mut turns), median(&mut wholes));
    json!({
        "tokens": count, "body_bytes": bytes, "whole_tokenization_ms": whole, "second_turn_ms": turn, "share": turn / whole,
    })
}

fn words(state: &mut u64, count: usize) -> String {
    let mut text = String::new();
    for i in 0..count {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(*state >> 33) as usize % WORDS.len()]);
        text.push(if i % 17 == 16 { '\n' } else { ' ' });
    }
    text
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1000.0
}
