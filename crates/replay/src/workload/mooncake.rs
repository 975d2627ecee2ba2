//! Traces in the form that the Mooncake project publishes: a JSON object a line, with the time in milliseconds, the
//! prompt's and the answer's length in tokens, and a number for each started block of 512 tokens of the prompt. Equal
//! numbers are equal blocks after equal blocks.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{Piece, Sketch, Workload};

/// Tokens in a block, as the traces have them.
const BLOCK_SIZE: u32 = 512;

#[derive(Deserialize)]
struct Line {
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Reads a trace. The workload is called as the file is.
pub(crate) fn read(path: &Path) -> Result<Workload> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    parse(&name, &text).with_context(|| format!("{} is no trace", path.display()))
}

/// Reads a trace's text.
pub(crate) fn parse(name: &str, text: &str) -> Result<Workload> {
    let sketches = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(|(i, line)| {
        let line: Line = serde_json::from_str(line).with_context(|| format!("line {}", i + 1))?;
        Ok(line.sketch())
    });
    Ok(Workload::new(name, BLOCK_SIZE, sketches.collect::<Result<_>>()?))
}

// === impl Line ===

impl Line {
    fn sketch(self) -> Sketch {
        let mut left = self.input_length;
        let pieces = self.hash_ids.into_iter().map(|content| {
            let tokens = left.min(BLOCK_SIZE);
            left -= tokens;
            Piece { content, tokens }
        });
        Sketch {
            at: self.timestamp as f64 / 1e3,
            pieces: pieces.filter(|piece| piece.tokens > 0).collect(),
            output_tokens: self.output_length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_are_equal_blocks_and_the_last_may_be_short() {
        let trace = r#"{"timestamp": 1500, "input_length": 1300, "output_length": 7, "hash_ids": [4, 5, 6]}
            {"timestamp": 0, "input_length": 1024, "output_length": 0, "hash_ids": [4, 9]}"#;
        let workload = parse("trace", trace).unwrap();
        let [first, second] = &workload.requests[..] else { panic!("two requests") };
        assert_eq!((first.at.as_millis(), second.at.as_millis()), (0, 1500));
        assert_eq!((first.output_tokens, second.output_tokens), (1, 7));
        assert_eq!((second.prompt.blocks, second.prompt.tokens, second.tokens().len()), (2, 1300, 1300));
        assert_eq!(first.hashes[0], second.hashes[0]);
        assert_ne!(first.hashes[1], second.hashes[1]);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let error = parse("trace", "\n{\"timestamp\": 0}").err().unwrap();
        assert!(format!("{error:#}").starts_with("line 2: missing field"), "{error:#}");
    }
}
