//! The scheduler's rules, one test each, in model time.

use std::num::NonZeroUsize;

use super::*;
use crate::cache::Namespace;

const TIME: TimeModel = TimeModel {
    base: Duration::from_millis(5),
    prefill_per_token: Duration::from_millis(1),
    decode_per_token: Duration::from_millis(2),
};

fn scheduler(num_blocks: usize, max_running: usize, max_waiting: usize) -> Scheduler {
    let cache = BlockCache::new(NonZeroUsize::new(4).unwrap(), num_blocks, 1);
    Scheduler::new(cache, TIME, Limits { max_running, max_waiting })
}

fn request(id: u64, first: u32, len: u32, max_tokens: usize) -> Request {
    Request {
        id: RequestId(id),
        prompt: (first..first + len).collect(),
        namespace: Namespace::default(),
        max_tokens,
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// When each token of `id` came, in ms.
fn token_times(effects: &Effects, id: u64) -> Vec<u128> {
    effects
        .outputs
        .iter()
        .filter(|output| output.id == RequestId(id))
        .map(|output| output.at.as_millis())
        .collect()
}

#[test]
fn first_token_takes_base_and_prefill_then_each_token_decodes() {
    let mut scheduler = scheduler(100, 4, 4);
    scheduler.submit(ms(0), vec![request(1, 0, 10, 3)]).unwrap();
    let effects = scheduler.advance(ms(1000));
    assert_eq!(token_times(&effects, 1), [15, 17, 19]);
    assert!(effects.outputs[2].finished);
}

#[test]
fn cached_tokens_need_no_prefill() {
    let mut scheduler = scheduler(100, 4, 4);
    scheduler.submit(ms(0), vec![request(1, 0, 9, 1)]).unwrap();
    scheduler.advance(ms(100));
    scheduler.submit(ms(100), vec![request(2, 0, 9, 1)]).unwrap();
    let effects = scheduler.advance(ms(1000));
    assert_eq!(effects.outputs[0].cached_tokens, 8);
    assert_eq!(token_times(&effects, 2), [106]);
}

#[test]
fn prefills_pass_one_at_a_time() {
    let mut scheduler = scheduler(100, 4, 4);
    let requests = vec![request(1, 0, 10, 1), request(2, 100, 10, 1), request(3, 200, 10, 1)];
    scheduler.submit(ms(0), requests).unwrap();
    assert_eq!((scheduler.load().running, scheduler.load().waiting), (1, 2));
    let effects = scheduler.advance(ms(1000));
    assert_eq!([1, 2, 3].map(|id| token_times(&effects, id)[0]), [15, 25, 35]);
}

#[test]
fn a_late_advance_changes_no_result() {
    let run = |steps: &[u64]| {
        let mut scheduler = scheduler(100, 2, 8);
        let requests = (0..6).map(|id| request(id, 100 * u32::try_from(id).unwrap(), 10, 4)).collect();
        let mut outputs = scheduler.submit(ms(0), requests).unwrap().outputs;
        outputs.extend(steps.iter().flat_map(|now| scheduler.advance(ms(*now)).outputs));
        outputs
    };
    let every_ms: Vec<u64> = (0..200).collect();
    assert_eq!(run(&every_ms), run(&[200]));
}

#[test]
fn waits_for_a_slot() {
    let mut scheduler = scheduler(100, 1, 4);
    scheduler.submit(ms(0), vec![request(1, 0, 10, 11), request(2, 100, 10, 1)]).unwrap();
    let effects = scheduler.advance(ms(1000));
    assert_eq!(token_times(&effects, 1).last(), Some(&35));
    assert_eq!(token_times(&effects, 2), [50]);
}

#[test]
fn waits_for_blocks() {
    let mut scheduler = scheduler(4, 4, 4);
    scheduler.submit(ms(0), vec![request(1, 0, 12, 1), request(2, 100, 12, 1)]).unwrap();
    let effects = scheduler.advance(ms(1000));
    assert_eq!(token_times(&effects, 1), [17]);
    assert_eq!(token_times(&effects, 2), [34]);
}

#[test]
fn refuses_what_can_never_fit_and_what_is_too_much() {
    let mut scheduler = scheduler(4, 1, 1);
    let refusal = scheduler.submit(ms(0), vec![request(1, 0, 16, 2)]).unwrap_err();
    assert_eq!(refusal, Refusal::TooLong { tokens: 17, room_tokens: 16 });
    scheduler.submit(ms(0), vec![request(1, 0, 15, 2), request(2, 0, 8, 1)]).unwrap();
    assert_eq!(scheduler.submit(ms(0), vec![request(3, 0, 8, 1)]).unwrap_err(), Refusal::QueueFull);
}

#[test]
fn announces_blocks_when_the_step_starts() {
    let mut scheduler = scheduler(100, 4, 4);
    let effects = scheduler.submit(ms(0), vec![request(1, 0, 7, 4)]).unwrap();
    assert!(matches!(effects.batches[..], [ref batch] if matches!(batch[..], [CacheEvent::Stored(_)])));
    // The first token comes at 12 ms, and its computation, which fills the second block, starts then.
    assert_eq!(scheduler.advance(ms(11)).batches.len(), 0);
    assert_eq!(scheduler.advance(ms(12)).batches.len(), 1);
}

#[test]
fn the_last_token_fills_no_block() {
    let mut scheduler = scheduler(100, 4, 4);
    scheduler.submit(ms(0), vec![request(1, 0, 7, 1)]).unwrap();
    assert_eq!(scheduler.advance(ms(1000)).batches.len(), 0);
}

#[test]
fn cancel_frees_blocks_and_lets_the_next_in() {
    let mut scheduler = scheduler(4, 4, 4);
    let requests = vec![request(1, 0, 12, 1), request(2, 100, 12, 1), request(3, 200, 12, 1)];
    scheduler.submit(ms(0), requests).unwrap();
    scheduler.advance(ms(13));
    scheduler.cancel(ms(13), &[RequestId(1), RequestId(2)]);
    let effects = scheduler.advance(ms(1000));
    assert_eq!(token_times(&effects, 3), [30]);
    assert_eq!(effects.outputs.len(), 1);
    assert_eq!(scheduler.load(), Load { running: 0, waiting: 0, held_share: 0.0 });
}

#[test]
fn preempts_the_last_admitted_and_finishes_it_later() {
    let mut scheduler = scheduler(5, 4, 4);
    scheduler.submit(ms(0), vec![request(1, 0, 8, 9), request(2, 100, 8, 9)]).unwrap();
    let effects = scheduler.advance(ms(1000));
    assert_eq!(scheduler.totals().preemptions, 1);
    for id in [1, 2] {
        let tokens: Vec<u32> = effects
            .outputs
            .iter()
            .filter(|output| output.id == RequestId(id))
            .map(|output| output.token)
            .collect();
        assert_eq!(tokens.len(), 9, "every token comes once");
    }
    assert_eq!(scheduler.load().held_share, 0.0);
}

#[test]
fn reset_goes_out_with_the_next_step() {
    let mut scheduler = scheduler(100, 4, 4);
    scheduler.submit(ms(0), vec![request(1, 0, 8, 2)]).unwrap();
    assert_eq!(scheduler.reset_cache(), Err(InUse));
    scheduler.advance(ms(1000));
    scheduler.reset_cache().unwrap();
    assert_eq!(scheduler.advance(ms(2000)).batches.len(), 0);
    let effects = scheduler.submit(ms(2000), vec![request(2, 0, 3, 1)]).unwrap();
    assert_eq!(effects.batches, vec![vec![CacheEvent::Cleared]]);
}

#[test]
fn a_closed_scheduler_ends_all_and_takes_nothing() {
    let mut scheduler = scheduler(100, 4, 4);
    scheduler.submit(ms(0), vec![request(1, 0, 8, 2), request(2, 0, 8, 2)]).unwrap();
    scheduler.close();
    assert_eq!(scheduler.load(), Load { running: 0, waiting: 0, held_share: 0.0 });
    assert_eq!(scheduler.advance(ms(1000)).outputs, []);
    assert_eq!(scheduler.submit(ms(1000), vec![request(3, 0, 8, 2)]).unwrap_err(), Refusal::Closed);
}
