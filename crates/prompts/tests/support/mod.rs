//! What the tests share: cases of transformers, and random conversations.
#![allow(unreachable_pub, dead_code, reason = "two test programs share it, each with a part")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warmroute_prompts::{Model, Options, Rendered, Request};

/// Nothing in the cases writes the date.
pub const NOW: i64 = 1_796_083_200;

/// A folder of recorded data.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub fn model(folder: &Path) -> Model {
    let options = Options { trust_request_template: true, ..Options::default() };
    Model::load(folder, options).unwrap()
}

/// Holds a model against `cases.jsonl` beside its files. The names of the cases that differ.
pub fn differing(folder: &Path) -> (usize, Vec<String>) {
    let model = model(folder);
    let cases = std::fs::read_to_string(folder.join("cases.jsonl")).unwrap();
    let cases: Vec<Value> = cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let differs = |case: &&Value| {
        let body = case["body"].as_str().unwrap();
        let expected: Option<Vec<u32>> = serde_json::from_value(case["tokens"].clone()).unwrap();
        let request = Request::parse(case["path"].as_str().unwrap(), body.as_bytes()).unwrap();
        let made = model.prompt(&request, NOW);
        let is_equal = match (&made, &expected) {
            (Ok(made), Some(expected)) => made.is_whole && made.tokens == *expected,
            (made, expected) => made.is_err() && expected.is_none(),
        };
        if !is_equal {
            let text = model.render(&request, NOW);
            let at = made.as_ref().ok().zip(expected.as_ref()).and_then(|(made, expected)| {
                made.tokens.iter().zip(expected).position(|(made, expected)| made != expected)
            });
            eprintln!("{}: first difference at {at:?}\n  {body}\n  {text:?}", case["name"]);
        }
        !is_equal
    };
    let names = cases.iter().filter(differs).map(|case| case["name"].as_str().unwrap().to_owned());
    let names = names.collect();
    (cases.len(), names)
}

/// A repeatable source of choices (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// A text of words, white space, line ends, digits, marks, parts of special tokens and any characters.
    pub fn text(&mut self, most: usize) -> String {
        const WORDS: [&str; 26] = [
            "the",
            "answer",
            "it's",
            " ",
            "  ",
            "\n",
            "\n\n",
            " \n ",
            "\r\n",
            "\t",
            "42",
            "3.14",
            "/",
            "//x",
            "!?",
            "...",
            "</s>",
            "<|im_start|>",
            "<|im_end|>",
            "<|eot_id|>",
            "<｜User｜>",
            "<think>",
            "<|",
            "你好",
            "é",
            "e\u{301}",
        ];
        let mut text = String::new();
        for _ in 0..self.below(most) {
            match self.below(10) {
                0 => {
                    let code = [0x80, 0x500, 0x3000, 0x1_F600][self.below(4)] + self.below(0x300) as u32;
                    text.extend(char::from_u32(code));
                }
                1 => text.extend(char::from_u32(self.below(128) as u32)),
                2 => text.push_str(&self.pick(&WORDS).repeat(1 + self.below(4))),
                3..5 => text.push(' '),
                _ => text.push_str(self.pick(&WORDS)),
            }
        }
        text
    }
}

/// Random conversations, each growing turn by turn: what is remembered of earlier turns must not change the tokens. Every
/// turn's tokens are held against those of the whole text tokenized at once.
pub fn grow(folder: &Path, conversations: usize) {
    let model = model(folder);
    let mut dice = Dice(1);
    for conversation in 0..conversations {
        let long = if conversation % 50 == 0 { 3000 } else { 40 };
        let mut messages = vec![];
        for turn in 0..1 + dice.below(3) {
            let role = |i: usize| ["user", "assistant"][i % 2];
            for _ in 0..if turn == 0 { 1 } else { 2 } {
                messages.push(json!({ "role": role(messages.len()), "content": dice.text(long) }));
            }
            let chat =
                json!({ "messages": messages, "add_generation_prompt": dice.below(2) == 0 }).to_string();
            let plain: Vec<_> = messages.iter().map(|message| message["content"].as_str().unwrap()).collect();
            let plain = json!({ "prompt": plain.concat() }).to_string();
            for (path, body) in [("/v1/chat/completions", chat), ("/v1/completions", plain)] {
                let request = Request::parse(path, body.as_bytes()).unwrap();
                let rendered = model.render(&request, NOW).unwrap();
                let Rendered::Text { text, special_tokens, .. } = &rendered else { panic!("{rendered:?}") };
                let whole = model.tokenizer().encode_whole(text, *special_tokens).unwrap();
                let made = model.tokenize(&rendered, &|| true).unwrap();
                assert_eq!(made.tokens, whole, "conversation {conversation}, turn {turn}: {text:?}");
            }
        }
    }
    let (tokens, cached) = model.tokenizer().counts();
    eprintln!("{}: {conversations} conversations, {cached} of {tokens} tokens from memory", folder.display());
    assert!(cached > tokens / 10, "{cached} of {tokens} tokens were remembered: nothing was tried");
}
