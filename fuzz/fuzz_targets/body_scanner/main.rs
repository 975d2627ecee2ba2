//! A body that comes in pieces reads as it does in one, and a body that serde_json can read reads as serde_json says.
//!
//! The input is a number of sizes in one byte, the sizes in one byte each, and the body. The pieces have these sizes
//! over and over; a size of 0 is an empty piece, and then a single byte.

#![no_main]

mod expected;

use libfuzzer_sys::fuzz_target;
use warmroute::prompt::PromptError;
use warmroute::prompt::json::{BodyScanner, Name, Progress, PromptKind, TokenSink};

use self::expected::Expected;

/// What a body holds: the prompt, its token IDs, and `model`, `cache_salt`, `lora_path`, `extra_key`.
type Outcome = Result<(PromptKind, Vec<u32>, [Name; 4]), PromptError>;

#[derive(Default)]
struct Tokens(Vec<u32>);

impl TokenSink for Tokens {
    fn token(&mut self, id: u32) {
        self.0.push(id);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&count, rest)) = input.split_first() else { return };
    let (sizes, body) = rest.split_at(rest.len().min(usize::from(count)));
    let whole = scan([body]);
    assert_eq!(scan(pieces(body, sizes)), whole, "pieces of {sizes:?}");
    match expected::of(body) {
        Expected::Outcome(expected) => assert!(same(&whole, &expected), "found {whole:?}, not {expected:?}"),
        Expected::Refused => assert!(whole.is_err(), "serde_json refuses it, found {whole:?}"),
        Expected::Unknown => {}
    }
});

fn pieces<'a>(body: &'a [u8], sizes: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut rest = body;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        if *size == 0 {
            pieces.push(&[] as &[u8]);
        }
        let (piece, after) = rest.split_at(usize::from(*size).clamp(1, rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest); // all of it, where there are no sizes
    pieces
}

/// Reads the pieces, and checks what may be asked on the way.
fn scan<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut tokens = Tokens::default();
    let mut scanner = BodyScanner::new();
    for piece in pieces {
        let (done, before) = (scanner.prompt_done(), tokens.0.len());
        let progress = scanner.feed(piece, &mut tokens);
        assert_eq!(scanner.tokens(), tokens.0.len());
        assert!(!done || tokens.0.len() == before, "a token after the prompt's end");
        if let Progress::Failed(error) = progress {
            assert_eq!((scanner.obstacle(), scanner.finish()), (Some(error), Err(error)));
        }
    }
    let prompt = scanner.finish()?;
    let names = [scanner.model(), scanner.cache_salt(), scanner.lora_path(), scanner.extra_key()];
    Ok((prompt, tokens.0, names.map(Clone::clone)))
}

/// Which of two faults in one body is named first is free, and beside embeddings the token IDs do not matter.
fn same(found: &Outcome, expected: &Outcome) -> bool {
    match (found, expected) {
        (Ok((PromptKind::Embeds, _, found)), Ok((PromptKind::Embeds, _, expected))) => found == expected,
        (Ok(found), Ok(expected)) => found == expected,
        (found, expected) => found.is_err() && expected.is_err(),
    }
}
