//! Random workloads: whatever happens, each request gets its tokens, once, and gives its blocks back.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::*;
use crate::cache::Namespace;

#[derive(Clone, Debug)]
enum Action {
    Submit { first: u32, len: u32, max_tokens: usize },
    Cancel { id: u64 },
    Wait { ms: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (0..4_u32, 1..20_u32, 1..20_usize)
            .prop_map(|(first, len, max_tokens)| Action::Submit { first, len, max_tokens }),
        1 => (0..20_u64).prop_map(|id| Action::Cancel { id }),
        3 => (0..30_u64).prop_map(|ms| Action::Wait { ms }),
    ]
}

/// Adds up the output tokens of each request.
fn count(effects: Effects, tokens: &mut HashMap<RequestId, usize>) {
    for output in effects.outputs {
        *tokens.entry(output.id).or_default() += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_finishes_and_frees_its_blocks(
        num_blocks in 4..16_usize,
        max_running in 1..6_usize,
        decode_ms in 0..3_u64,
        actions in prop::collection::vec(action(), 1..40),
    ) {
        let cache = BlockCache::new(NonZeroUsize::new(4).unwrap(), num_blocks, 1);
        let time = TimeModel {
            base: Duration::from_millis(3),
            prefill_per_token: Duration::from_micros(300),
            decode_per_token: Duration::from_millis(decode_ms),
        };
        let mut scheduler = Scheduler::new(cache, time, Limits { max_running, max_waiting: 8 });
        let mut now = Duration::ZERO;
        let (mut wanted, mut got) = (HashMap::new(), HashMap::new());
        for (id, action) in (0..).zip(actions) {
            count(scheduler.advance(now), &mut got);
            match action {
                Action::Submit { first, len, max_tokens } => {
                    let prompt = (first..first + len).collect();
                    let id = RequestId(id);
                    let request = Request { id, prompt, namespace: Namespace::default(), max_tokens };
                    if let Ok(effects) = scheduler.submit(now, vec![request]) {
                        wanted.insert(id, max_tokens);
                        count(effects, &mut got);
                    }
                }
                Action::Cancel { id } => {
                    count(scheduler.cancel(now, &[RequestId(id)]), &mut got);
                    wanted.remove(&RequestId(id));
                    got.remove(&RequestId(id));
                }
                Action::Wait { ms } => now += Duration::from_millis(ms),
            }
            let load = scheduler.load();
            prop_assert!(load.running <= max_running && load.waiting <= max_running + 8);
        }
        count(scheduler.advance(now + Duration::from_secs(3600)), &mut got);
        prop_assert_eq!(got, wanted);
        prop_assert_eq!(scheduler.load(), Load { running: 0, waiting: 0, held_share: 0.0 });
    }
}
