//! Whatever a host passes, the component answers with a value: nothing traps.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod bench;
mod dice;

use std::fs;
use std::path::Path;

use warmroute_host::{Warmroute, prefix_index};
use xxhash_rust::xxh3::xxh3_64;

use crate::bench::Bench;

const CALLS: u32 = 100_000;

fn open() -> Warmroute {
    Warmroute::open(&Warmroute::built_component().unwrap()).unwrap()
}

/// Frames of real engines, as the fuzzers start with them: each with its length in two bytes before it.
fn payloads() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wire_frames");
    let mut payloads = Vec::new();
    for entry in fs::read_dir(corpus).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let mut rest = &bytes[..];
        while let Some((len, after)) = rest.split_first_chunk()
            && let Some((frame, after)) = after.split_at_checked(usize::from(u16::from_be_bytes(*len)))
        {
            payloads.push(frame.to_vec());
            rest = after;
        }
    }
    payloads
}

#[test]
fn a_hundred_thousand_random_calls_do_not_trap() {
    let mut bench = Bench::new(open(), payloads());
    for call in 0..CALLS {
        if let Err(trap) = bench.call() {
            panic!("call {call}: {trap:?}");
        }
    }
    // Nothing of it would be worth much if all calls were refused, or none.
    for (call, (answered, refused)) in bench.tally() {
        assert!(*answered > 20 && *refused > 20, "{call}: {answered} answered, {refused} refused");
    }
}

#[test]
fn a_handle_that_was_dropped_is_an_error_and_leaves_the_instance_whole() {
    let mut host = open();
    let Warmroute { store, world } = &mut host;
    let calls = world.warmroute_routing_prefix_index().index();
    let options = prefix_index::Options { block_size: 4, max_orphans: 100 };
    let (gone, index) = (
        calls.call_open(&mut *store, options).unwrap().unwrap(),
        calls.call_open(&mut *store, options).unwrap().unwrap(),
    );
    gone.resource_drop(&mut *store).unwrap();
    assert!(calls.call_stats(&mut *store, gone).is_err());
    assert_eq!(calls.call_stats(&mut *store, index).unwrap().workers, 0);
}

/// A snapshot as long as may be, of one worker: its saved cache is `count` items that `item` writes, and what belongs
/// before and after them.
fn largest_snapshot(
    before: &[u8],
    item_bytes: usize,
    after: &[u8],
    item: impl Fn(u32) -> Vec<u8>,
) -> Vec<u8> {
    let count = ((1 << 27) - 100 - before.len() - after.len()) / item_bytes;
    let mut cache = before.to_vec();
    cache.extend((count as u32).to_le_bytes());
    (0..count as u32).for_each(|place| cache.extend(item(place)));
    cache.extend(after);
    let mut out = b"wrm-indx".to_vec();
    let (version, block_size, max_orphans, workers) = (1, 16, u32::MAX, 1);
    let worker = [0, 0, 0, cache.len() as u32];
    for number in [version, block_size, max_orphans, workers].into_iter().chain(worker) {
        out.extend(number.to_le_bytes());
    }
    out.extend(cache);
    out.extend(xxh3_64(&out).to_le_bytes());
    out
}

#[test]
#[ignore = "takes minutes; a change of what is saved has to pass it"]
fn the_largest_snapshot_finds_room_whatever_it_holds() {
    let none = 0_u32.to_le_bytes();
    let wide = |number: u32| u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    // Blocks that nobody holds, each the child of the one before it: `parent hash`, the first with a namespace.
    let first = [&[0; 4][..], &wide(0), &[0; 8]].concat();
    let chain = largest_snapshot(&[], 12, &[none, none].concat(), |place| {
        if place == 0 { first.clone() } else { [&place.to_le_bytes()[..], &wide(place)].concat() }
    });
    // One block under ever new names: `node  group hash  copies`.
    let node = [&1_u32.to_le_bytes()[..], &first].concat();
    let names = largest_snapshot(&node, 24, &none, |place| {
        [&none[..], &none, &wide(place), &[1, 0, 0, 0, 0, 0, 0, 0]].concat()
    });
    // Blocks that wait: `group hash  parent  copies  0 local hash`.
    let orphans = largest_snapshot(&[none, none].concat(), 41, &[], |place| {
        let (name, parent) = (wide(2 * place), wide(2 * place + 1));
        [&none[..], &name, &none, &parent, &[1, 0, 0, 0, 0, 0, 0, 0, 0], &name].concat()
    });
    for (what, snapshot) in [("chain", chain), ("names", names), ("orphans", orphans)] {
        assert!(snapshot.len() <= 1 << 27, "{what}");
        let mut host = open();
        let Warmroute { store, world } = &mut host;
        let calls = world.warmroute_routing_prefix_index().index();
        let restored = calls.call_restore(&mut *store, &prefix_index::Saved::Bytes(snapshot));
        println!(
            "{what}: {:?}",
            restored.map(|restored| restored.map(|index| calls.call_stats(&mut *store, index)))
        );
    }
}
