use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::page::{Holder, Page, PageHeader, PageWriter, RUN_BLOCKS};
use crate::tier::Tier;

const SHAPE: IndexShape = IndexShape { generation: Generation(3), page_bits: PageBits::new(4).unwrap() };

/// Pages in a map, and how often they were read.
struct Pages(BTreeMap<u32, Vec<u8>>);

impl PageStore for Pages {
    type Bytes = Vec<u8>;

    fn read(&mut self, page: u32) -> Option<Vec<u8>> {
        self.0.get(&page).cloned()
    }
}

fn slot(number: u16) -> Slot {
    Slot::new(number).unwrap()
}

fn hashes(blocks: u32) -> Vec<SequenceHash> {
    (0..blocks).map(|i| SequenceHash(u64::from(i).wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()
}

/// Pages in which worker `i` matches `hashes` as deep as `depths[i]` says.
fn publish(hashes: &[SequenceHash], depths: &[Depths]) -> Pages {
    let mut by_page: BTreeMap<u32, BTreeMap<SequenceHash, Vec<Holder>>> = BTreeMap::new();
    for (block, hash) in hashes.iter().enumerate() {
        let head = hashes[block - block % RUN_BLOCKS as usize];
        let record = by_page.entry(SHAPE.page_bits.page_of(head)).or_default().entry(*hash).or_default();
        for (i, depth) in depths.iter().enumerate() {
            let tier = Tier::ALL.into_iter().find(|tier| depth.within(*tier) as usize > block);
            record.extend(tier.map(|tier| Holder { slot: slot(i as u16), tier }));
        }
    }
    let page = |(number, records): (u32, BTreeMap<SequenceHash, Vec<Holder>>)| {
        let mut writer = PageWriter::default();
        records.into_iter().for_each(|(hash, holders)| writer.record(hash, holders));
        (number, writer.finish(PageHeader { number, generation: SHAPE.generation, version: 1 }))
    };
    Pages(by_page.into_iter().map(page).collect())
}

fn scope<S: PageStore>(store: &mut S, max_reads: u32) -> Scope<'_, S, fn(Slot) -> bool> {
    Scope { store, shape: SHAPE, live: |_| true, max_reads }
}

fn look(pages: &mut Pages, hashes: &[SequenceHash], max_reads: u32) -> Matches {
    lookup(scope(pages, max_reads), hashes, &mut RefineAll)
}

fn any_depths() -> impl Strategy<Value = Vec<Depths>> {
    let depths = (0..100u32, 0..30u32, 0..30u32, 0..30u32).prop_map(|(gpu, cpu, disk, external)| {
        Depths::new([gpu, gpu + cpu, gpu + cpu + disk, gpu + cpu + disk + external])
    });
    proptest::collection::vec(depths, 0..12)
}

proptest! {
    #[test]
    fn finds_each_workers_exact_depth_in_each_tier(depths in any_depths(), blocks in 0..120u32) {
        let hashes = hashes(blocks);
        let mut pages = publish(&hashes, &depths);
        let found = look(&mut pages, &hashes, u32::MAX);
        let clip = |depth: &Depths| Depths::new(depth.0.map(|tier| tier.min(blocks)));
        let expected: Vec<_> = depths.iter().map(clip).enumerate().filter(|(_, d)| d.any() > 0).collect();
        prop_assert_eq!(found.workers.len(), expected.len());
        for (found, (i, depth)) in found.workers.iter().zip(expected) {
            prop_assert_eq!((found.slot, found.at_least, found.at_most), (slot(i as u16), depth, depth));
        }
    }

    #[test]
    fn a_cap_on_reads_never_claims_more_than_is_held(depths in any_depths(), blocks in 1..120u32, cap in 1..20u32) {
        let hashes = hashes(blocks);
        let mut pages = publish(&hashes, &depths);
        let found = look(&mut pages, &hashes, cap);
        prop_assert!(found.reads <= cap);
        for found in &found.workers {
            let truth = depths[usize::from(found.slot.number())];
            for tier in Tier::ALL {
                let held = truth.within(tier).min(blocks);
                prop_assert!(found.at_least.within(tier) <= held && held <= found.at_most.within(tier));
            }
        }
    }
}

proptest! {
    #[test]
    fn a_prompt_that_arrives_in_parts_is_matched_as_if_it_had_come_at_once(
        depths in any_depths(),
        steps in proptest::collection::vec((1..40u32, 0..200u32), 1..8),
    ) {
        let blocks: u32 = steps.iter().map(|(step, _)| step).sum();
        let hashes = hashes(blocks);
        let mut pages = publish(&hashes, &depths);
        let at_once = look(&mut pages, &hashes, u32::MAX);
        let (mut lookup, mut known) = (Lookup::default(), 0);
        for (step, guess) in steps {
            known += step;
            let hashes = &hashes[..known as usize];
            let expected_blocks = (known < blocks).then_some(guess);
            let extent = Extent { hashes, expected_blocks };
            let progress = lookup.advance(scope(&mut pages, u32::MAX), extent, &mut RefineAll);
            if progress == Progress::Done {
                break;
            }
            // Somebody holds all that is there, so more may matter.
            prop_assert!(known < blocks && lookup.matches().workers.iter().any(|m| m.at_least.any() == known));
        }
        prop_assert_eq!(&lookup.matches().workers, &at_once.workers);
    }
}

#[test]
fn a_long_prompt_is_done_at_the_first_block_that_nobody_holds() {
    let hashes = hashes(400);
    let mut pages = publish(&hashes, &[Depths::all_gpu(90), Depths::all_gpu(120)]);
    let mut lookup = Lookup::default();
    let mut advance = |known: usize| {
        let extent = Extent { hashes: &hashes[..known], expected_blocks: Some(400) };
        lookup.advance(scope(&mut pages, 64), extent, &mut RefineAll)
    };
    assert_eq!(advance(0), Progress::MoreBlocks);
    assert_eq!(advance(100), Progress::MoreBlocks);
    assert_eq!(advance(130), Progress::Done);
    let depths: Vec<_> = lookup.matches().workers.iter().map(|found| found.at_least.any()).collect();
    assert_eq!(depths, [90, 120]);
}

/// Pages in which one worker holds `held` blocks of a prompt, whose runs are all crowded.
fn crowded(hashes: &[SequenceHash], held: usize) -> Pages {
    let bits = SHAPE.page_bits;
    let mut by_page: BTreeMap<u32, BTreeMap<SequenceHash, bool>> = BTreeMap::new();
    for (block, hash) in hashes.iter().enumerate().take(held) {
        let is_head = block % RUN_BLOCKS as usize == 0;
        by_page.entry(bits.page_of(*hash)).or_default().insert(*hash, is_head);
    }
    let holder = [Holder { slot: slot(0), tier: Tier::Gpu }];
    let page = |(number, records): (u32, BTreeMap<SequenceHash, bool>)| {
        let mut writer = PageWriter::default();
        for (hash, is_head) in records {
            if is_head { writer.crowded(hash, holder) } else { writer.record(hash, holder) }
        }
        (number, writer.finish(PageHeader { number, generation: SHAPE.generation, version: 1 }))
    };
    Pages(by_page.into_iter().map(page).collect())
}

#[test]
fn blocks_of_a_crowded_run_are_found_by_their_own_hashes() {
    let hashes = hashes(120);
    for held in 1..=120 {
        let found = look(&mut crowded(&hashes, held), &hashes, u32::MAX);
        assert_eq!(found.workers[0].at_least, Depths::all_gpu(held as u32));
        let found = look(&mut crowded(&hashes, held), &hashes, 4);
        assert!(found.reads <= 4 && found.workers[0].at_least.any() <= held as u32);
    }
}

#[test]
fn a_cold_prompt_costs_one_read() {
    let hashes = hashes(512);
    let found = look(&mut publish(&hashes, &[]), &hashes, 64);
    assert_eq!(found, Matches { workers: vec![], reads: 1, capped: false });
}

#[test]
fn one_warm_worker_of_512_blocks_costs_about_seven_reads() {
    let hashes = hashes(512);
    let found = look(&mut publish(&hashes, &[Depths::all_gpu(300)]), &hashes, 64);
    assert_eq!(found.workers[0].at_least, Depths::all_gpu(300));
    assert!(found.reads <= 8, "{} reads", found.reads);
}

#[test]
fn slots_that_are_not_live_count_for_nothing() {
    let hashes = hashes(64);
    let mut pages = publish(&hashes, &[Depths::all_gpu(60), Depths::all_gpu(20)]);
    let scope = Scope { store: &mut pages, shape: SHAPE, live: |s| s == slot(1), max_reads: 64 };
    let found = lookup(scope, &hashes, &mut RefineAll);
    assert_eq!(
        found.workers,
        [Match { slot: slot(1), at_least: Depths::all_gpu(20), at_most: Depths::all_gpu(20) }]
    );
}

#[test]
fn pages_of_another_generation_or_number_and_broken_pages_read_as_empty() {
    let hashes = hashes(40);
    let shape = IndexShape { generation: Generation(4), ..SHAPE };
    let mut pages = publish(&hashes, &[Depths::all_gpu(40)]);
    let foreign = Scope { shape, ..scope(&mut pages, 64) };
    assert!(lookup(foreign, &hashes, &mut RefineAll).workers.is_empty());

    let first = SHAPE.page_bits.page_of(hashes[0]);
    let other = pages.0.values().find(|page| Page::parse(page).unwrap().header().number != first).cloned();
    pages.0.insert(first, other.unwrap());
    assert!(look(&mut pages, &hashes, 64).workers.is_empty());
    pages.0.insert(first, b"WRPG but not a page".to_vec());
    assert!(look(&mut pages, &hashes, 64).workers.is_empty());
}

#[test]
fn a_page_that_changes_between_two_reads_neither_panics_nor_hangs() {
    struct Flicker(Pages, bool);
    impl PageStore for Flicker {
        type Bytes = Vec<u8>;
        fn read(&mut self, page: u32) -> Option<Vec<u8>> {
            self.1 = !self.1;
            if self.1 { self.0.read(page) } else { None }
        }
    }
    let hashes = hashes(100);
    let mut store = Flicker(publish(&hashes, &[Depths::all_gpu(90), Depths::all_gpu(10)]), false);
    let found = lookup(scope(&mut store, 64), &hashes, &mut RefineAll);
    assert!(!found.capped && found.workers.iter().all(|found| found.at_least.any() <= 90));
}

proptest! {
    #[test]
    fn a_workers_depth_is_the_larger_of_what_is_published_and_what_is_taken_as_given(
        depths in any_depths(),
        floors in proptest::collection::vec((0..14u16, 0..140u32), 0..8),
        blocks in 1..120u32,
        part in 1..120u32,
    ) {
        let hashes = hashes(blocks);
        let mut pages = publish(&hashes, &depths);
        let floor = |(number, depth): &(u16, u32), known: u32| {
            Floor { slot: slot(*number), blocks: (*depth).min(known) }
        };
        let mut lookup = Lookup::default();
        for known in [part.min(blocks), blocks] {
            lookup.assume(&floors.iter().map(|given| floor(given, known)).collect::<Vec<_>>());
            let expected_blocks = (known < blocks).then_some(blocks);
            let extent = Extent { hashes: &hashes[..known as usize], expected_blocks };
            lookup.advance(scope(&mut pages, u32::MAX), extent, &mut RefineAll);
        }
        for number in 0..14u16 {
            let given = floors.iter().filter(|(of, _)| *of == number).map(|(_, depth)| *depth).max();
            let published = depths.get(usize::from(number)).copied().unwrap_or_default();
            let larger = |tier| published.within(tier).max(given.unwrap_or(0)).min(blocks);
            let found = lookup.matches().workers.iter().find(|found| found.slot == slot(number));
            let found = found.map(|found| (found.at_least, found.is_exact())).unwrap_or((Depths::default(), true));
            prop_assert!(found.1);
            for tier in Tier::ALL {
                prop_assert_eq!(found.0.within(tier), larger(tier), "worker {} {:?}", number, tier);
            }
        }
    }
}

#[test]
fn a_cold_prompt_that_was_just_sent_somewhere_costs_one_read() {
    let hashes = hashes(512);
    let mut lookup = Lookup::default();
    lookup.assume(&[Floor { slot: slot(3), blocks: 500 }, Floor { slot: slot(1), blocks: 20 }]);
    let extent = Extent { hashes: &hashes, expected_blocks: None };
    assert_eq!(lookup.advance(scope(&mut publish(&hashes, &[]), 64), extent, &mut RefineAll), Progress::Done);
    let known = |number, blocks| Match {
        slot: slot(number),
        at_least: Depths::all_gpu(blocks),
        at_most: Depths::all_gpu(blocks),
    };
    assert_eq!(
        *lookup.matches(),
        Matches { workers: vec![known(1, 20), known(3, 500)], reads: 1, capped: false }
    );
}
