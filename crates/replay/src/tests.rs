//! What the comparison rests on.

use std::time::Duration;

use warmroute_simengine::scheduler::TimeModel;

use crate::figures::{Row, replay};
use crate::fleet::Hardware;
use crate::simulation::Setting;
use crate::workload::{self, Workload, mooncake};
use crate::{capacity, router};

fn setting(workers: usize) -> Setting {
    let millis = Duration::from_millis;
    Setting {
        hardware: Hardware {
            workers,
            cache_tokens: 20_000,
            time: TimeModel {
                base: millis(5),
                prefill_per_token: Duration::from_micros(100),
                decode_per_token: millis(10),
            },
            max_running: 64,
        },
        event_delay: millis(20),
        route_life: millis(2_000),
    }
}

/// A trace of prompts of whole blocks: the time in milliseconds, and the blocks.
fn trace(requests: &[(u64, &[u64])]) -> Workload {
    let line = |(at, blocks): &(u64, &[u64])| {
        let tokens = blocks.len() * 512;
        format!(r#"{{"timestamp":{at},"input_length":{tokens},"output_length":10,"hash_ids":{blocks:?}}}"#)
    };
    let text: Vec<String> = requests.iter().map(line).collect();
    mooncake::parse("tiny", &text.join("\n")).unwrap()
}

fn ttft_ms(policy: &str, workload: &Workload, setting: &Setting) -> Vec<u128> {
    let outcomes = replay(policy, std::slice::from_ref(workload), 1.0, setting).unwrap();
    outcomes[0].ttft.iter().map(Duration::as_millis).collect()
}

#[test]
fn times_are_those_of_the_engines_model() {
    // 1,024 tokens at 100 µs, and 5 ms; then all but the last block is cached; then a block that waits for another's 512.
    let workload = trace(&[(0, &[1, 2]), (1_000, &[1, 2]), (2_000, &[3]), (2_000, &[4])]);
    assert_eq!(ttft_ms("round_robin", &workload, &setting(1)), [107, 56, 56, 107]);
}

#[test]
fn round_robin_alternates_and_the_default_follows_the_cache() {
    let workload = trace(&[(0, &[1, 2, 3]), (1_000, &[1, 2, 3]), (2_000, &[1, 2, 3]), (3_000, &[1, 2, 3])]);
    assert_eq!(ttft_ms("round_robin", &workload, &setting(2)), [158, 158, 56, 56]);
    assert_eq!(ttft_ms("default", &workload, &setting(2)), [158, 56, 56, 56]);
}

#[test]
fn what_was_just_routed_counts_before_its_events_come() {
    let mut slow = setting(2);
    slow.event_delay = Duration::from_millis(1_500);
    let workload = trace(&[(0, &[1, 2, 3]), (1_000, &[1, 2, 3])]);
    assert_eq!(ttft_ms("default", &workload, &slow)[1], 56);
    slow.route_life = Duration::ZERO;
    let cold = (0..4).filter(|seed| {
        let mut router = router::of_name("default", 512, &slow, *seed).unwrap().unwrap();
        crate::simulation::run(&workload, 1.0, &slow, router.as_mut()).unwrap().cached_tokens == 0
    });
    assert!(cold.count() > 0, "without it, the second request goes anywhere");
}

#[test]
fn nobody_beats_the_ideal_on_a_small_example() {
    let prompts: [&[u64]; 8] = [
        &[1, 2, 3, 4],
        &[9],
        &[1, 2, 3, 4],
        &[8, 7, 6],
        &[8, 7, 6, 5],
        &[1, 2, 3, 4, 5],
        &[9, 10],
        &[11, 12, 13],
    ];
    let requests: Vec<_> = (0..).map(|i| i * 100).zip(prompts).collect();
    let p90 =
        |policy: &str| Row::measure(policy, &[trace(&requests)], 1.0, 1.0, &setting(3)).unwrap().ttft_ms_p90;
    for policy in router::NAMES {
        assert!(p90("ideal") <= p90(policy), "{policy}: {} < {}", p90(policy), p90("ideal"));
    }
}

#[test]
fn equal_seeds_give_equal_figures_and_every_request_is_answered() {
    for name in workload::names() {
        let draw = |seed| workload::built_in(name, seed).unwrap();
        let (one, again, other) = (draw(7), draw(7), draw(8));
        assert!(one.requests.len() >= 800, "{name}");
        assert!(
            one.requests.iter().zip(&again.requests).all(|(a, b)| (a.at, &a.hashes) == (b.at, &b.hashes))
        );
        assert!(one.requests.iter().zip(&other.requests).any(|(a, b)| a.at != b.at));
        if name == "hot_prefix" {
            let run = |workload| ttft_ms("default", workload, &setting(8));
            assert_eq!(run(&one), run(&again));
            assert!(run(&one).iter().all(|ttft| *ttft >= 5));
        }
    }
}

#[test]
fn the_highest_rate_lies_where_the_fleet_is_full() {
    // Two workers do twenty prompts of 1,024 tokens a second between them; one comes each second.
    let blocks: Vec<[u64; 2]> = (0..400).map(|i| [2 * i, 2 * i + 1]).collect();
    let requests: Vec<(u64, &[u64])> =
        blocks.iter().zip(0..).map(|(ids, i)| (i * 1_000, ids.as_slice())).collect();
    let rate = capacity::highest_rate(&[trace(&requests)], &setting(2)).unwrap();
    // A bounded trace ends before its queues can grow without end: a little more than what lasts for ever.
    assert!((19.0..24.0).contains(&rate), "{rate}");
}

#[test]
fn sglangs_gateway_follows_its_own_tree() {
    // Events never come: only who remembers what it sent finds the second prompt's beginning.
    let mut deaf = setting(4);
    deaf.event_delay = Duration::from_secs(1_000);
    let workload = trace(&[(0, &[1, 2]), (1_000, &[5, 6]), (9_000, &[1, 2, 3])]);
    assert_eq!(ttft_ms("sglang", &workload, &deaf), [107, 107, 56]);
}

#[test]
fn dynamo_counts_the_blocks_that_requests_in_flight_share_once() {
    // Decodes take 90 ms. At 150 ms worker A still holds blocks 1 and 2: only block 3 is new there.
    let workload = trace(&[(0, &[1, 2]), (0, &[7, 8, 9]), (150, &[1, 2, 3])]);
    assert_eq!(ttft_ms("dynamo", &workload, &setting(2))[2], 56);
}

#[test]
fn llm_d_gives_cold_requests_to_one_worker_after_the_other() {
    let workload = trace(&[(0, &[1]), (500, &[2]), (1_000, &[3]), (1_500, &[4])]);
    let outcomes = replay("llm_d", &[workload], 1.0, &setting(4)).unwrap();
    assert!(outcomes[0].in_hand.windows(2).all(|pair| pair[0] == pair[1]), "{outcomes:?}");
}
