//! Real tokenizers and templates, in the folder that `WARMROUTE_MODELS` names: `cargo xtask test --templates`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod support;

use std::path::PathBuf;

use support::{differing, grow};

/// Cases that are known to differ, each with its reason in `docs/prompts.md`.
const KNOWN: [&str; 2] = ["gemma3: chat 103", "gemma3: chat 281"];

fn models() -> Vec<PathBuf> {
    let folder = std::env::var("WARMROUTE_MODELS")
        .unwrap_or_else(|_| panic!("WARMROUTE_MODELS names the folder of the models"));
    let mut models: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("cases.jsonl").exists())
        .collect();
    models.sort();
    assert!(!models.is_empty());
    models
}

#[test]
#[ignore = "needs the models: cargo xtask test --templates"]
fn requests_have_the_tokens_of_transformers() {
    let mut all = vec![];
    for model in models() {
        let (cases, differing) = differing(&model);
        let name = model.file_name().unwrap().to_str().unwrap().to_owned();
        println!("{name}: {} of {cases} requests have the tokens of transformers", cases - differing.len());
        assert!(cases >= 300, "{name} has {cases} cases");
        all.extend(differing.into_iter().map(|case| format!("{name}: {case}")));
    }
    assert_eq!(all, KNOWN);
}

#[test]
#[ignore = "needs the models: cargo xtask test --templates"]
fn growing_conversations_have_the_tokens_of_their_whole_text() {
    models().iter().for_each(|model| grow(model, 10_000));
}
