//! The pages: what they cost to build, to send and to write.

use warmroute_routing::page::Page;

use super::report::{Report, Subject, median};
use super::stopwatch::time;
use super::streams::Fleet;
use crate::blocks::Chain;
use crate::dice::Dice;
use crate::engine::{Names, Rank, stored};
use crate::ours::{OurEvent, Ours};

/// Blocks in a prompt of 8,192 tokens.
const PROMPT: usize = 512;

/// Adds the rows.
pub fn run(report: &mut Report, rounds: usize) {
    report.heading("Pages");
    build(report, rounds);
    new_prompts(report);
    crowd(report);
}

fn build(report: &mut Report, rounds: usize) {
    let mut ours = filled();
    let pages = u64::from(ours.index.page_bits().page_count());
    let subject = Subject::new("warmroute", || {
        time(|| {
            std::hint::black_box(ours.pages());
            pages
        })
    });
    report.rounds("building a page", rounds, vec![subject]);
}

/// An index of a fleet at work, with as many pages as the collector would choose.
fn filled() -> Ours {
    let fleet = Fleet { workers: 64, prompts: 64 };
    let mut ours = Ours::new(4, fleet.ranks());
    for (rank, told) in fleet.stores(0..fleet.prompts, 32) {
        ours.apply(ours.worker(rank), &OurEvent::new(&told));
    }
    ours.grow();
    ours
}

/// What the feed sends and the publisher writes for a prompt that nobody has had yet, and for a conversation's next turn.
fn new_prompts(report: &mut Report) {
    let mut ours = filled();
    let mut dice = Dice::new(5);
    for (name, shared, blocks) in
        [("a new prompt of 512 blocks", 0, PROMPT), ("a turn: 32 new blocks after 480", 480, PROMPT)]
    {
        let (mut bytes, mut writes) = (vec![], vec![]);
        for seed in 0..200 {
            let rank = Rank { engine: dice.below(64) as u32, rank: 0 };
            let chain = Chain::drawn(1 << 40 | seed << 8 | shared as u64, blocks);
            if shared > 0 {
                ours.apply(
                    ours.worker(rank),
                    &OurEvent::new(&stored(&chain, 0..shared, Names::Shared, rank)),
                );
            }
            let (sent, written) = changes(&mut ours, |ours| {
                ours.apply(
                    ours.worker(rank),
                    &OurEvent::new(&stored(&chain, shared..blocks, Names::Shared, rank)),
                );
            });
            bytes.push(sent);
            writes.push(written);
        }
        report.add(name, "warmroute", [("feed_bytes", median(bytes)), ("pages_written", median(writes))]);
    }
}

/// 10,000 conversations that part within a few blocks of one another.
fn crowd(report: &mut Report) {
    let mut ours = filled();
    let trunk = Chain::drawn(1 << 50, 64);
    let mut dice = Dice::new(6);
    let (mut bytes, mut writes) = (vec![], vec![]);
    for seed in 0..10_000 {
        let rank = Rank { engine: dice.below(64) as u32, rank: 0 };
        let shared = 33 + dice.below(6);
        let chain = trunk.forked(shared, 1 << 51 | seed, 64);
        let (sent, written) = changes(&mut ours, |ours| {
            ours.apply(ours.worker(rank), &OurEvent::new(&stored(&chain, 0..64, Names::Shared, rank)));
        });
        bytes.push(sent);
        writes.push(written);
    }
    let late = |figures: &[f64]| median(figures[9_000..].to_vec());
    let largest = ours.pages().0.iter().map(Vec::len).max().unwrap_or(0);
    let records =
        ours.pages().0.iter().map(|page| Page::parse(page).map_or(0, |page| page.len())).max().unwrap_or(0);
    let figures = [
        ("feed_bytes", late(&bytes)),
        ("pages_written", late(&writes)),
        ("largest_page_bytes", largest as f64),
        ("largest_page_records", records as f64),
    ];
    report.add("10,000 conversations part within 6 blocks", "warmroute", figures);
}

/// The bytes and the number of the pages that `change` changes.
fn changes(ours: &mut Ours, change: impl FnOnce(&mut Ours)) -> (f64, f64) {
    let before = ours.index.version();
    change(ours);
    let numbers: Vec<_> = ours.index.changed_since(before).map(|(_, number)| number).collect();
    let bytes: usize = numbers.iter().map(|number| ours.index.page(*number).len()).sum();
    (bytes as f64, numbers.len() as f64)
}
