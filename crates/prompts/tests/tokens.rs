//! The tokens of recorded requests are those of transformers and of vLLM; what is remembered changes none.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use std::cell::Cell;

use support::{NOW, data, differing, grow, model};
use warmroute_prompts::{PromptError, Rendered, Request};

/// `cases.jsonl` is what transformers made of the requests (`make_cases.py --small`).
#[test]
fn recorded_requests_have_the_tokens_of_transformers() {
    let (cases, differing) = differing(&data("small"));
    assert!(cases >= 40);
    assert_eq!(differing, [""; 0]);
}

#[test]
fn a_growing_conversation_has_the_tokens_of_its_whole_text() {
    grow(&data("small"), 300);
}

/// `cases.jsonl` is what a real vLLM 0.32.0 answered: `/tokenize`, and the `prompt_token_ids` of its completions.
#[test]
fn recorded_requests_have_the_tokens_of_vllm() {
    let (cases, differing) = differing(&data("vllm_tiny"));
    assert!(cases >= 4);
    assert_eq!(differing, [""; 0]);
}

/// Its pre-tokenizer takes white space across a line's end (GPT-2's pattern): only special tokens are places to cut.
#[test]
fn a_growing_conversation_has_the_tokens_of_its_whole_text_where_lines_are_no_cuts() {
    grow(&data("vllm_tiny"), 300);
}

/// An image, or what is not known, ends the prefix: what stands before it counts.
#[test]
fn what_stands_before_an_image_counts() {
    let model = model(&data("small"));
    let tokens = |content: &str| {
        let body = format!(
            r#"{{"messages":[{{"role":"system","content":"be brief"}},{{"role":"user","content":{content}}},{{"role":"user","content":"then"}}]}}"#
        );
        let request = Request::parse("/v1/chat/completions", body.as_bytes()).unwrap();
        model.prompt(&request, NOW)
    };
    let whole = tokens(r#""look:""#).unwrap();
    let image = r#"[{"type":"text","text":"look:"},{"type":"image_url","image_url":{"url":"data:x"}}]"#;
    let cut = tokens(image).unwrap();
    assert!(whole.is_whole && !cut.is_whole);
    // Up to the message with the image: the place of an image within it is the template's affair.
    let start = model.tokenizer().encode_whole("<|im_start|>", false).unwrap();
    let last = whole.tokens.iter().enumerate().filter(|(_, token)| **token == start[0]).nth(1).unwrap().0;
    assert_eq!(cut.tokens, whole.tokens[..last]);
    assert_eq!(tokens(r#"[{"type":"riddle"}]"#).unwrap(), cut);
    assert!(tokens("5").is_err());
}

/// What nobody waits for stops before its next new piece, and what was made by then is made for whoever asks again.
#[test]
fn what_nobody_waits_for_stops_between_pieces_and_loses_none() {
    let model = model(&data("small"));
    let turns: Vec<String> = (0..40)
        .map(|turn| format!(r#"{{"role":"user","content":"turn {turn} of a conversation"}}"#))
        .collect();
    let body = format!(r#"{{"messages":[{}]}}"#, turns.join(","));
    let request = Request::parse("/v1/chat/completions", body.as_bytes()).unwrap();
    let rendered = model.render(&request, NOW).unwrap();
    let asked = Cell::new(0);
    let count = || {
        asked.set(asked.get() + 1);
        asked.get() <= 5
    };
    assert!(matches!(model.tokenize(&rendered, &count), Err(PromptError::Abandoned)));
    assert_eq!(asked.replace(0), 6);
    // The five pieces that were made are known now.
    let count = || {
        asked.set(asked.get() + 1);
        true
    };
    let prompt = model.tokenize(&rendered, &count).unwrap();
    let Rendered::Text { text, special_tokens, .. } = &rendered else { panic!("a chat is text") };
    assert_eq!(prompt.tokens, model.tokenizer().encode_whole(text, *special_tokens).unwrap());
    let rest = asked.replace(0);
    assert!(rest > 30, "{rest}");
    model.tokenize(&rendered, &count).unwrap();
    assert!(asked.get() < rest, "{} of {rest}", asked.get());
}
