//! Memory for each pair of block and worker.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use dynamo_kv_router::indexer::ThreadPoolIndexer;
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree};

use super::events::{our_events, their_events};
use super::report::Report;
use super::streams::Fleet;
use crate::ours::Ours;

/// What shared data needs for a value beside the value's own bytes, measured in Envoy.
const KEY_BYTES: usize = 92;

static COUNTS: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, which counts while it is asked to.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

fn count(bytes: i64) {
    if COUNTS.load(Ordering::Relaxed) {
        LIVE.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What `build` leaves allocated, in bytes, beside what it makes.
fn kept<T>(build: impl FnOnce() -> T) -> (T, f64) {
    LIVE.store(0, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
    let built = build();
    COUNTS.store(false, Ordering::Relaxed);
    (built, LIVE.load(Ordering::Relaxed) as f64)
}

/// Adds the rows.
pub fn run(report: &mut Report) {
    report.heading("Memory for each pair of block and worker");
    for (workers, prompts) in [(64, 64), (8, 256), (512, 16)] {
        let fleet = Fleet { workers, prompts };
        let stream = fleet.stores(0..prompts, 32);
        let case = format!("{workers} workers, {prompts} prompts each");

        let (mut ours, bytes) = kept(|| {
            let mut ours = Ours::new(4, fleet.ranks());
            for (rank, told) in &stream {
                let worker = ours.worker(*rank);
                our_events(&ours, &vec![(*rank, told.clone())])
                    .iter()
                    .for_each(|(_, event)| ours.apply(worker, event));
            }
            ours.grow();
            ours
        });
        let stats = ours.index.stats();
        let pairs = stats.holdings as f64;
        let pages = ours.pages();
        let page_bytes: usize = pages.0.iter().map(Vec::len).sum();
        let written = pages.0.iter().filter(|page| page.len() > 32).count();
        report.add(
            &case,
            "warmroute, collector",
            [("bytes", bytes / pairs), ("pairs", pairs), ("blocks", stats.blocks as f64)],
        );
        report.add(
            &case,
            "warmroute, pages",
            [
                ("bytes", page_bytes as f64 / pairs),
                ("with_keys", (page_bytes + written * KEY_BYTES) as f64 / pairs),
            ],
        );

        let (tree, bytes) = kept(|| {
            let mut tree = RadixTree::new();
            for event in &stream {
                their_events(&vec![event.clone()])
                    .into_iter()
                    .for_each(|event| tree.apply_event(event).expect("a store"));
            }
            tree
        });
        report.add(&case, "dynamo radix tree", [("bytes", bytes / pairs)]);
        drop(tree);

        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (indexer, bytes) = kept(|| {
            let indexer = ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 2, 16);
            for event in &stream {
                their_events(&vec![event.clone()])
                    .into_iter()
                    .for_each(|event| indexer.enqueue_event(event).expect("an indexer"));
            }
            runtime.block_on(indexer.flush());
            indexer
        });
        report.add(&case, "dynamo concurrent", [("bytes", bytes / pairs)]);
        drop(indexer);
    }
}
