//! Applying events.

use dynamo_kv_router::indexer::ThreadPoolIndexer;
use dynamo_kv_router::protocols::RouterEvent;
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree};
use warmroute_index::WorkerId;

use super::report::{Report, Subject};
use super::stopwatch::{Sample, time};
use super::streams::{Fleet, Stream, blocks};
use crate::ours::{OurEvent, Ours};
use crate::theirs;

/// Threads of the concurrent indexer that apply events.
const THREADS: usize = 2;
/// `2^13` pages: some ten records each for what the fleet holds.
const PAGE_BITS: u8 = 13;

/// A stream that is applied after another one that is not timed.
struct Case {
    name: &'static str,
    before: Stream,
    timed: Stream,
}

/// Adds the rows.
pub fn run(report: &mut Report, rounds: usize) {
    report.heading("Events applied: per block that an event names");
    let fleet = Fleet { workers: 64, prompts: 24 };
    let all = 0..fleet.prompts;
    let cases = [
        Case { name: "stores, 32 blocks an event", before: vec![], timed: fleet.stores(all.clone(), 32) },
        Case { name: "stores, 1 block an event", before: vec![], timed: fleet.stores(0..8, 1) },
        Case {
            name: "evictions, 16 blocks an event",
            before: fleet.stores(all.clone(), 32),
            timed: fleet.evictions(all.clone()),
        },
        Case { name: "churn: evictions and stores", before: fleet.stores(all, 32), timed: fleet.churn(24) },
    ];
    for case in &cases {
        let subjects = vec![
            Subject::new("warmroute", || ours(fleet, case)),
            Subject::new("dynamo radix tree", || tree(case)),
            Subject::new("dynamo concurrent", || concurrent(case)),
        ];
        report.rounds(case.name, rounds, subjects);
    }
}

/// What a stream is for our index.
pub fn our_events(ours: &Ours, stream: &Stream) -> Vec<(WorkerId, OurEvent)> {
    stream.iter().map(|(rank, told)| (ours.worker(*rank), OurEvent::new(told))).collect()
}

/// What a stream is for theirs.
pub fn their_events(stream: &Stream) -> Vec<RouterEvent> {
    stream.iter().zip(0..).map(|((rank, told), id)| theirs::event(*rank, id, told)).collect()
}

fn ours(fleet: Fleet, case: &Case) -> Sample {
    let mut ours = Ours::new(PAGE_BITS, fleet.ranks());
    our_events(&ours, &case.before).iter().for_each(|(worker, event)| ours.apply(*worker, event));
    let events = our_events(&ours, &case.timed);
    time(|| {
        // The events are used up in the timed part, as theirs are.
        events.into_iter().for_each(|(worker, event)| ours.apply(worker, &event));
        blocks(&case.timed)
    })
}

fn tree(case: &Case) -> Sample {
    let mut tree = RadixTree::new();
    their_events(&case.before)
        .into_iter()
        .for_each(|event| tree.apply_event(event).expect("a block that is there"));
    let events = their_events(&case.timed);
    time(|| {
        events.into_iter().for_each(|event| tree.apply_event(event).expect("a block that is there"));
        blocks(&case.timed)
    })
}

fn concurrent(case: &Case) -> Sample {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let indexer = ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), THREADS, 16);
    let apply = |events: Vec<RouterEvent>| {
        events.into_iter().for_each(|event| indexer.enqueue_event(event).expect("an indexer that runs"));
        // Until they are applied, not until they are queued.
        runtime.block_on(indexer.flush());
    };
    apply(their_events(&case.before));
    let events = their_events(&case.timed);
    time(|| {
        apply(events);
        blocks(&case.timed)
    })
}
