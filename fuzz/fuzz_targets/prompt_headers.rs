//! Header values as clients send them: whatever reads as a list reads the same when it is written plainly.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmroute::prompt::header::{base64_tokens, block_hashes, decimal_tokens};

fuzz_target!(|value: &[u8]| {
    if let Ok(tokens) = decimal_tokens(value) {
        let plain = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        assert_eq!(decimal_tokens(plain.as_bytes()), Ok(tokens));
    }
    if let Ok(tokens) = base64_tokens(value) {
        // Every token takes five digits at least.
        assert!(tokens.len() * 5 <= value.len());
    }
    if let Ok(hashes) = block_hashes(value) {
        let plain = hashes.iter().map(|hash| format!("{hash:016x}")).collect::<Vec<_>>().join(",");
        assert_eq!(block_hashes(plain.as_bytes()), Ok(hashes));
    }
});
