//! How long a selection takes from Rust: `select-worker` over 64 workers of 2,000 blocks, a prompt of 8,192 tokens. Prints
//! a line of JSON: the medians in milliseconds. `cargo xtask bench component` runs it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark may panic")]

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use warmroute_host::{Warmroute, prefix_index, router, types};
use wasmtime::component::ResourceAny;

const BLOCK_SIZE: u32 = 16;
const WORKERS: u64 = 64;
const BLOCKS: u32 = 2_000;
const TOKENS: u32 = 8_192;
const SELECTIONS: usize = 400;

/// The tokens of a prompt: all workers hold some blocks of prompt 0, and beyond those blocks of their own.
fn tokens(prompt: u64, range: std::ops::Range<u32>) -> impl Iterator<Item = u32> {
    range.map(move |place| {
        ((u64::from(place) + (prompt << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % 100_000
    })
}

/// Blocks of prompt 0 that a worker holds: each another number, 504 at the most.
fn shared_blocks(worker: u64) -> u32 {
    (worker * 37 % 64) as u32 * 8
}

fn fill(host: &mut Warmroute) -> ResourceAny {
    let Warmroute { store, world } = host;
    let calls = world.warmroute_routing_prefix_index().index();
    let options = prefix_index::Options { block_size: BLOCK_SIZE, max_orphans: 0 };
    let index = calls.call_open(&mut *store, options).unwrap().unwrap();
    for id in 1..=WORKERS {
        let worker = types::Worker { id, rank: 0 };
        assert!(calls.call_add_worker(&mut *store, index, worker).unwrap());
        let shared = shared_blocks(id) * BLOCK_SIZE;
        let held = tokens(0, 0..shared).chain(tokens(id, shared..BLOCKS * BLOCK_SIZE)).collect();
        let stored = prefix_index::Event::Stored(prefix_index::Stored {
            hashes: (0..u64::from(BLOCKS)).collect(),
            parent: None,
            content: prefix_index::Content::Tokens((types::Tokens::Ids(held), BLOCK_SIZE)),
            lora: None,
            salt: None,
            tier: types::Tier::Gpu,
            group: 0,
        });
        let outcome = calls.call_apply(&mut *store, index, worker, &[stored], 0).unwrap();
        assert_eq!(outcome.applied.stored, BLOCKS);
    }
    index
}

/// The median of selections of a prompt, each booked within the time and freed outside of it.
fn median(host: &mut Warmroute, desk: ResourceAny, prompt: &types::Prompt) -> Duration {
    let Warmroute { store, world } = host;
    let calls = world.warmroute_routing_router().router();
    let best = (1..=WORKERS).map(shared_blocks).max().unwrap();
    let mut select = |now_ms| {
        let options = router::Options { ranked: 1, book: true, now_ms };
        let begun = Instant::now();
        let selection =
            calls.call_select_worker(&mut *store, desk, "r", prompt, &router::Candidates::All, options);
        let took = begun.elapsed();
        assert_eq!(selection.unwrap().unwrap().depths.gpu, best);
        assert!(calls.call_free(&mut *store, desk, "r").unwrap());
        took
    };
    let mut times: Vec<_> = (0..SELECTIONS as u64).map(&mut select).collect();
    times.sort_unstable();
    times[SELECTIONS / 2]
}

fn main() {
    let mut host = Warmroute::open(&Warmroute::built_component().unwrap()).unwrap();
    let index = fill(&mut host);
    let Warmroute { store, world } = &mut host;
    let settings =
        router::Settings { policy: router::Policy::Standard, max_age_ms: None, booking_life_ms: 600_000 };
    let calls = world.warmroute_routing_router().router();
    let desk = calls.call_open(&mut *store, index, settings).unwrap().unwrap();

    let ids: Vec<u32> = tokens(0, 0..TOKENS).collect();
    let text = STANDARD.encode(ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>());
    let plain = || types::Namespace { lora: None, salt: None };
    let list = types::Prompt::Tokens((types::Tokens::Ids(ids), plain()));
    let text = types::Prompt::Tokens((types::Tokens::Base64(text), plain()));
    let [list, text] = [list, text].map(|prompt| median(&mut host, desk, &prompt).as_secs_f64() * 1_000.0);
    println!("{{\"warmroute_rust_list\": {list:.4}, \"warmroute_rust_text\": {text:.4}}}");
}
