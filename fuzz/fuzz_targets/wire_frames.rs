//! What an engine sends, as the collector takes it: the frames of a message, and payloads one after the other into one
//! adapter, which remembers what it is told once. Every engine's adapter reads every payload: what one of them sends is
//! hostile to the others.
//!
//! The input is frames, each with its length in two bytes before it; what is left is one more.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmroute_wire::{Adapter, Engine, Message, worker_of_topic};

fuzz_target!(|bytes: &[u8]| {
    let frames = frames(bytes);
    let _ = (Message::parse(&frames), frames.iter().map(|topic| worker_of_topic(topic)).count());
    for engine in Engine::ALL {
        read_all(Adapter::new(engine), &frames);
    }
});

fn read_all(mut adapter: Adapter, frames: &[&[u8]]) {
    for payload in frames {
        let mut twin = adapter.clone();
        let read = adapter.decode(payload);
        assert_eq!(format!("{read:?}"), format!("{:?}", twin.decode(payload)), "not the same twice");
        if let Ok(batch) = read {
            // Each event takes a byte at least: a promise of many costs nothing.
            assert!(batch.len() <= payload.len());
            assert_eq!(batch.is_empty(), batch.len() == 0);
        }
    }
    adapter.reset();
    for payload in frames {
        let _ = adapter.decode(payload);
    }
}

fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk()
        && let Some((frame, rest)) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
    {
        frames.push(frame);
        bytes = rest;
    }
    frames.push(bytes);
    frames
}
