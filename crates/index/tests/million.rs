//! A million blocks stored and evicted: what is allocated afterwards is what was allocated after the first ones.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    unsafe_code,
    reason = "a test counts its memory"
)]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use support::{identity, index, removed, stored};
use warmroute_index::event::Event;

/// Counts the bytes that are allocated now.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is the system allocator's; only sizes are counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Resident memory of this process in KiB, as Linux tells it.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

const CHAIN: u32 = 10;
/// Chains that are held at a time.
const WINDOW: u32 = 500;
const CYCLES: u32 = 1_000_000;
/// By then every table has the size that it keeps.
const SETTLED: u32 = 100_000;

/// Each cycle stores a block and evicts one, ten at a time: chains below a shared block, from the leaf or from the root,
/// for two workers.
#[test]
fn memory_is_flat_over_a_million_stores_and_evictions() {
    let mut index = index(1, 8);
    let workers = [0, 1].map(|number| index.add_worker(identity(number)).unwrap());
    let blocks_of = |chain: u32| (1..=CHAIN).map(|n| 1 + chain * CHAIN + n).collect::<Vec<_>>();
    for worker in workers {
        index.apply(worker, &Event::Stored(stored(None, &[0]))).unwrap();
    }
    let mut samples = Vec::new();
    let (mut stores, mut evictions) = (0, 0);
    for chain in 0..CYCLES / CHAIN {
        let worker = workers[(chain % 2) as usize];
        stores += index.apply(worker, &Event::Stored(stored(Some(0), &blocks_of(chain)))).unwrap().stored;
        if let Some(old) = chain.checked_sub(WINDOW) {
            let mut blocks = blocks_of(old);
            if old % 3 == 0 {
                blocks.reverse();
            }
            evictions += index.apply(workers[(old % 2) as usize], &removed(&blocks)).unwrap().removed;
        }
        let cycles = (chain + 1) * CHAIN;
        if cycles >= SETTLED && cycles.is_multiple_of(SETTLED) {
            samples.push((cycles, ALLOCATED.load(Ordering::Relaxed), resident_kib()));
        }
    }
    for (cycles, bytes, kib) in &samples {
        println!("{cycles:>8} stores and evictions: {bytes} bytes allocated, {kib} KiB resident");
    }
    assert_eq!((stores, evictions), (CYCLES, CYCLES - WINDOW * CHAIN));
    let (first, last) = (samples[0].1, samples[samples.len() - 1].1);
    // The samples themselves, and the log of changed pages on its way between two cleanings.
    assert!(last <= first + 16 * 1024, "{first} bytes have become {last}");
}
