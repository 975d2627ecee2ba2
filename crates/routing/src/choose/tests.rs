use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Tier;
use crate::page::{Generation, Holder, PageBits, PageHeader, PageWriter};

const PROMPT: Prompt = Prompt { blocks: 100, tokens: 1600, block_size: 16 };
const ONE: Limits = Limits { max_reads: u32::MAX, choices: 1 };
const GENERATION: Generation = Generation(1);

/// One page that holds everything.
struct OnePage(Vec<u8>);

impl PageStore for OnePage {
    type Bytes = Vec<u8>;

    fn read(&mut self, _: u32) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

/// Each page has all of it, so that pages are read as where each run has its own.
struct Everywhere<'a>(&'a [SequenceHash], &'a [u32]);

impl PageStore for Everywhere<'_> {
    type Bytes = Vec<u8>;

    fn read(&mut self, number: u32) -> Option<Vec<u8>> {
        Some(page(number, self.0, self.1))
    }
}

/// Costs a block that must be computed as much as `weight` blocks in hand.
struct Missing(f64);

impl Policy for Missing {
    fn cost(&self, prompt: &Prompt, depths: &Depths, load: &Load, _: &Fleet) -> Cost {
        let missing = f64::from(prompt.blocks) - f64::from(depths.within(Tier::Gpu));
        Cost { first: self.0 * missing + load.prefill_tokens as f64, then: 0.0 }
    }
}

fn slot(number: usize) -> Slot {
    Slot::new(number as u16).unwrap()
}

fn shape() -> IndexShape {
    IndexShape { generation: GENERATION, page_bits: PageBits::new(0).unwrap() }
}

fn hashes(blocks: u64) -> Vec<SequenceHash> {
    (1..=blocks).map(SequenceHash).collect()
}

/// An index in which worker `i` holds the first `depths[i]` blocks in the GPU tier.
fn index(hashes: &[SequenceHash], depths: &[u32]) -> OnePage {
    OnePage(page(0, hashes, depths))
}

fn page(number: u32, hashes: &[SequenceHash], depths: &[u32]) -> Vec<u8> {
    let mut writer = PageWriter::default();
    let records: BTreeMap<_, _> = hashes.iter().enumerate().collect();
    for (block, hash) in records {
        let holders = depths.iter().enumerate().filter(|(_, depth)| **depth as usize > block);
        writer.record(*hash, holders.map(|(i, _)| Holder { slot: slot(i), tier: Tier::Gpu }));
    }
    writer.finish(PageHeader { number, generation: GENERATION, version: 1 })
}

fn candidates(loads: &[u32]) -> Vec<Candidate> {
    let candidate = |(i, load): (usize, &u32)| Candidate {
        slot: slot(i),
        load: Load { requests: *load, prefill_tokens: u64::from(*load), blocks: 0 },
    };
    loads.iter().enumerate().map(candidate).collect()
}

fn choose(
    depths: &[u32],
    loads: &[u32],
    policy: &impl Policy,
    choices: usize,
    tie: u64,
) -> (Vec<usize>, u32) {
    let (hashes, candidates) = (hashes(100), candidates(loads));
    let limits = Limits { max_reads: 64, choices };
    let question = Question { prompt: PROMPT, candidates: &candidates, policy, limits, tie };
    let chosen = select(&mut index(&hashes, depths), shape(), &hashes, &question);
    (chosen.choices.iter().map(|choice| usize::from(choice.slot.number())).collect(), chosen.reads)
}

#[test]
fn the_longest_prefix_wins_whatever_the_load() {
    assert_eq!(choose(&[10, 90, 40], &[0, 99, 0], &LongestPrefix, 1, 0).0, [1]);
}

#[test]
fn among_equal_prefixes_the_least_load_wins() {
    assert_eq!(choose(&[50, 50, 10], &[3, 2, 0], &LongestPrefix, 1, 0).0, [1]);
}

#[test]
fn equals_are_spread_evenly() {
    let mut counts = [0; 3];
    for tie in 0..300 {
        counts[choose(&[20, 20, 20], &[1, 1, 1], &LongestPrefix, 1, tie).0[0]] += 1;
    }
    assert_eq!(counts, [100, 100, 100]);
}

#[test]
fn no_candidates_no_choice() {
    assert_eq!(choose(&[50], &[], &LongestPrefix, 2, 7).0, [0usize; 0]);
}

#[test]
fn a_prompt_under_one_block_is_chosen_for_by_load() {
    let prompt = Prompt { blocks: 0, tokens: 5, block_size: 16 };
    let candidates = candidates(&[4, 1, 2]);
    let question = Question { prompt, candidates: &candidates, policy: &LongestPrefix, limits: ONE, tie: 0 };
    let chosen = select(&mut index(&[], &[]), shape(), &[], &question);
    let best = chosen.choices[0];
    assert_eq!((best.slot, best.depths, chosen.reads), (slot(1), Depths::default(), 0));
}

#[test]
fn the_longest_prefix_is_found_without_narrowing_the_others() {
    let depths: Vec<u32> = (1..=60).collect();
    let (chosen, reads) = choose(&depths, &[0; 60], &LongestPrefix, 1, 0);
    assert_eq!(chosen, [59]);
    assert!(reads <= 8, "{reads} reads");
}

#[test]
fn a_worker_that_is_not_a_candidate_is_never_chosen() {
    let (hashes, candidates) = (hashes(100), candidates(&[0, 0]));
    let limits = Limits { max_reads: 64, choices: 8 };
    let only_worker_0 = &candidates[..1];
    let question =
        Question { prompt: PROMPT, candidates: only_worker_0, policy: &LongestPrefix, limits, tie: 0 };
    let chosen = select(&mut index(&hashes, &[5, 90]), shape(), &hashes, &question);
    assert_eq!(chosen.choices.iter().map(|choice| choice.slot).collect::<Vec<_>>(), [slot(0)]);
    assert_eq!(chosen.choices[0].depths, Depths::all_gpu(5));
}

proptest! {
    #[test]
    fn leaving_pages_unread_never_changes_who_wins(
        workers in proptest::collection::vec((0..=100u32, 0..60u32), 1..10),
        weight in 0.0..3.0f64,
    ) {
        let (depths, loads): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
        let policy = Missing(weight);
        let cost = |i: usize| policy.cost(&PROMPT, &Depths::all_gpu(depths[i]), &candidates(&loads)[i].load, &Fleet::default());
        let least = (0..depths.len()).map(cost).min_by_key(Cost::key).unwrap();
        let (chosen, _) = choose(&depths, &loads, &policy, 1, 0);
        prop_assert_eq!(cost(chosen[0]), least);
    }
}

/// How many of 100 blocks had to be there before a choice was made, a block at a time, and who was chosen.
fn choose_early(depths: &[u32], loads: &[u32], policy: &impl Policy) -> (usize, usize) {
    let (hashes, candidates) = (hashes(100), candidates(loads));
    let mut store = index(&hashes, depths);
    let question = Question { prompt: PROMPT, candidates: &candidates, policy, limits: ONE, tie: 0 };
    let mut selector = Selector::default();
    let known = (1..=100).find(|known| {
        let whole = *known == 100;
        selector.advance(&mut store, shape(), &hashes[..*known], whole, &question) == Progress::Done
    });
    (known.unwrap(), usize::from(selector.selection(&question).choices[0].slot.number()))
}

#[test]
fn a_cold_prompt_is_decided_by_its_first_block() {
    assert_eq!(choose_early(&[0, 0], &[3, 1], &LongestPrefix), (1, 1));
}

#[test]
fn the_choice_is_made_once_only_one_worker_holds_what_is_there() {
    assert_eq!(choose_early(&[90, 30], &[0, 0], &LongestPrefix), (31, 0));
}

#[test]
fn the_choice_waits_while_two_workers_hold_all_that_is_there() {
    assert_eq!(choose_early(&[60, 80], &[0, 0], &LongestPrefix), (61, 1));
    assert_eq!(choose_early(&[100, 100], &[1, 0], &LongestPrefix), (100, 1));
}

proptest! {
    #[test]
    fn choosing_before_the_end_never_changes_who_wins(
        workers in proptest::collection::vec((0..=100u32, 0..60u32), 1..8),
        weight in 0.0..3.0f64,
    ) {
        let (depths, loads): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
        let policy = Missing(weight);
        let cost = |i: usize| policy.cost(&PROMPT, &Depths::all_gpu(depths[i]), &candidates(&loads)[i].load, &Fleet::default());
        let least = (0..depths.len()).map(cost).min_by_key(Cost::key).unwrap();
        prop_assert_eq!(cost(choose_early(&depths, &loads, &policy).1), least);
    }
}

proptest! {
    /// The search relies on it.
    #[test]
    fn no_rule_charges_more_for_a_deeper_match(
        shallow in proptest::array::uniform4(0..=100u32),
        more in proptest::array::uniform4(0..=50u32),
        prefill_tokens in 0..1_000_000u64,
        requests in 0..50u32,
        decay in 0.0..3.0f64,
    ) {
        let deep = Depths::new([0, 1, 2, 3].map(|i| (Depths::new(shallow).within(Tier::ALL[i]) + more[i]).min(100)));
        let shallow = Depths::new(shallow.map(|depth| depth.min(100)));
        let load = Load { requests, prefill_tokens, blocks: 7 };
        let rules = [
            Rule::default(),
            Rule::FirstToken(FirstToken { cpu_credit: 1.0, disk_credit: 0.0, thrift: 3.0, scarcity: 100.0 }),
            Rule::Prefix(LongestPrefix),
            Rule::Cost(Weighed::default()),
            Rule::Cost(Weighed { credit_decay: decay, ..Weighed::default() }),
            Rule::Sticky(Sticky::default()),
            Rule::LeastLoad(LeastLoad),
        ];
        for rule in rules {
            let cost = |depths| rule.cost(&PROMPT, &depths, &load, &Fleet { least_prefill_tokens: 500 });
            prop_assert!(cost(deep).key() <= cost(shallow).key(), "{rule:?}: {shallow:?} {deep:?}");
        }
    }
}

proptest! {
    /// The search relies on it.
    #[test]
    fn no_rule_charges_less_for_more_in_hand(
        depths in proptest::array::uniform4(0..=100u32),
        (requests, prefill_tokens, blocks) in (0..50u32, 0..1_000_000u64, 0..10_000u64),
        (more_requests, more_tokens, more_blocks) in (0..3u32, 0..400_000u64, 0..3u64),
        weight in 0.0..3.0f64,
    ) {
        let less = Load { requests, prefill_tokens, blocks };
        let more = less.plus(Load { requests: more_requests, prefill_tokens: more_tokens, blocks: more_blocks });
        for rule in rules(weight) {
            let cost = |load| rule.cost(&PROMPT, &Depths::new(depths), &load, &Fleet { least_prefill_tokens: 500 });
            prop_assert!(cost(less).key() <= cost(more).key(), "{rule:?}: {less:?} {more:?}");
        }
    }

    #[test]
    fn a_cost_has_the_order_of_its_parts((a, b) in (any::<(f64, f64)>(), any::<(f64, f64)>())) {
        let cost = |(first, then)| Cost { first, then };
        let expected = a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
        prop_assert_eq!(cost(a).key().cmp(&cost(b).key()), expected);
    }
}

#[test]
fn equals_are_spread_over_all_where_the_cache_does_not_count() {
    let mut counts = [0; 4];
    for tie in 0..400 {
        counts[choose(&[90, 40, 0, 0], &[1, 1, 1, 1], &LeastLoad, 1, tie).0[0]] += 1;
    }
    assert_eq!(counts, [100; 4]);
}

#[test]
fn a_prompt_that_is_asked_again_costs_two_reads() {
    let hashes: Vec<_> = (0..512u64).map(|i| SequenceHash(i << 55)).collect();
    let candidates = candidates(&[0; 64]);
    let limits = Limits { max_reads: 64, choices: 3 };
    let prompt = Prompt { blocks: 512, tokens: 8192, block_size: 16 };
    let question = Question { prompt, candidates: &candidates, policy: &LongestPrefix, limits, tie: 5 };
    // One worker holds all of it, the others a system prompt.
    let depths: Vec<u32> = (0..64).map(|i| if i == 9 { 512 } else { 100 }).collect();
    let shape = IndexShape { page_bits: PageBits::new(9).unwrap(), ..shape() };
    let chosen = select(&mut Everywhere(&hashes, &depths), shape, &hashes, &question);
    assert_eq!((chosen.choices[0].slot, chosen.choices[0].depths), (slot(9), Depths::all_gpu(512)));
    assert!(chosen.choices.len() == 3 && chosen.choices[1..].iter().all(|choice| choice.depths.any() > 0));
    assert!(chosen.reads <= 2, "{} reads", chosen.reads);
}

/// Every rule, with weights from one end of their range to the other.
fn rules(weight: f64) -> [Rule; 6] {
    [
        Rule::default(),
        Rule::FirstToken(FirstToken { thrift: weight, scarcity: weight * 10.0, ..FirstToken::default() }),
        Rule::Prefix(LongestPrefix),
        Rule::Cost(Weighed { credit_decay: weight, request_weight: weight, ..Weighed::default() }),
        Rule::Sticky(Sticky { least_share: weight / 3.0, most_surplus_tokens: 30 }),
        Rule::LeastLoad(LeastLoad),
    ]
}

proptest! {
    /// The decision with pages unread, or before the prompt's end, is the one that knows every depth.
    #[test]
    fn under_every_rule_the_bounded_decision_equals_the_full_one(
        workers in proptest::collection::vec((0..=100u32, 0..2_000u32), 1..8),
        weight in 0.0..3.0f64,
    ) {
        let (depths, loads): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
        let candidates = candidates(&loads);
        let least_prefill_tokens = candidates.iter().map(|candidate| candidate.load.prefill_tokens).min().unwrap();
        for rule in rules(weight) {
            let cost = |i: usize| {
                rule.cost(&PROMPT, &Depths::all_gpu(depths[i]), &candidates[i].load, &Fleet { least_prefill_tokens })
            };
            let least = (0..depths.len()).map(cost).min_by_key(Cost::key).unwrap();
            prop_assert_eq!(cost(choose(&depths, &loads, &rule, 1, 0).0[0]), least, "{:?}", rule);
            prop_assert_eq!(cost(choose_early(&depths, &loads, &rule).1), least, "early, {:?}", rule);
        }
    }
}

/// What a worker holds of the prompt in each tier, what was just sent to it, and what it has in hand.
fn any_worker() -> impl Strategy<Value = (Depths, u32, u32)> {
    let depths = (0..=100u32, 0..3u32, 0..40u32, 0..40u32).prop_map(|(gpu, none, cpu, disk)| {
        let gpu = if none == 0 { 0 } else { gpu };
        Depths::new([gpu, gpu + cpu, gpu + cpu + disk, gpu + cpu + disk].map(|depth| depth.min(100)))
    });
    let floor = prop_oneof![5 => Just(0u32), 1 => 0..=100u32];
    (depths, floor, prop_oneof![2 => Just(0u32), 1 => 0..2_000u32])
}

proptest! {
    /// Many workers, most of which are never looked at: in slower tiers, just sent the same, and with several choices wanted.
    #[test]
    fn whoever_costs_least_of_many_is_found(
        workers in proptest::collection::vec(any_worker(), 1..40),
        (weight, choices, tie, at) in (0.0..3.0f64, 1..5usize, any::<u64>(), 1..=100usize),
    ) {
        let hashes = hashes(100);
        let mut writer = PageWriter::default();
        for (block, hash) in hashes.iter().enumerate() {
            let tier = |depths: &Depths| Tier::ALL.into_iter().find(|tier| depths.within(*tier) as usize > block);
            let holders = workers.iter().enumerate().filter_map(|(i, (depths, ..))| {
                Some(Holder { slot: slot(i), tier: tier(depths)? })
            });
            writer.record(*hash, holders);
        }
        let mut store = OnePage(writer.finish(PageHeader { number: 0, generation: GENERATION, version: 1 }));
        let candidates = candidates(&workers.iter().map(|(.., load)| *load).collect::<Vec<_>>());
        let floors = |known: usize| -> Vec<_> {
            let floor = |(i, (_, blocks, _)): (usize, &(Depths, u32, u32))| {
                Floor { slot: slot(i), blocks: (*blocks).min(known as u32) }
            };
            workers.iter().enumerate().map(floor).collect()
        };
        let least_prefill_tokens = candidates.iter().map(|candidate| candidate.load.prefill_tokens).min().unwrap();
        for rule in rules(weight) {
            let truth = |i: usize| {
                let (depths, floor, _) = &workers[i];
                let depths = Depths::new(Tier::ALL.map(|tier| depths.within(tier).max(*floor)));
                rule.cost(&PROMPT, &depths, &candidates[i].load, &Fleet { least_prefill_tokens }).key()
            };
            let limits = Limits { max_reads: u32::MAX, choices };
            let question = Question { prompt: PROMPT, candidates: &candidates, policy: &rule, limits, tie };
            let mut selector = Selector::default();
            for known in [at, 100] {
                selector.assume(&floors(known));
                selector.advance(&mut store, shape(), &hashes[..known], known == 100, &question);
            }
            let chosen = selector.selection(&question).choices;
            prop_assert_eq!(chosen.len(), choices.min(workers.len()));
            let least = (0..workers.len()).map(truth).min().unwrap();
            prop_assert_eq!(truth(usize::from(chosen[0].slot.number())), least, "{:?}", rule);
            let distinct: std::collections::BTreeSet<_> = chosen.iter().map(|choice| choice.slot).collect();
            prop_assert_eq!(distinct.len(), chosen.len());
            // Nothing is claimed that is not held.
            for choice in &chosen {
                let (depths, floor, _) = &workers[usize::from(choice.slot.number())];
                prop_assert!(Tier::ALL.iter().all(|tier| choice.depths.within(*tier) <= depths.within(*tier).max(*floor)));
            }
        }
    }
}
