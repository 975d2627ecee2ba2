//! A host that calls whatever there is with whatever comes up.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use warmroute_host::{Warmroute, events, hashing, prefix_index, router};
use wasmtime::Result;
use wasmtime::component::ResourceAny;
use xxhash_rust::xxh3::xxh3_64;

use crate::dice::Dice;

/// Things of each kind that live at a time.
const KEPT: usize = 3;

/// A few of each resource, which come and go.
pub(crate) struct Bench {
    host: Warmroute,
    dice: Dice,
    /// What engines have sent.
    payloads: Vec<Vec<u8>>,
    indexes: Vec<ResourceAny>,
    routers: Vec<ResourceAny>,
    subscriptions: Vec<ResourceAny>,
    /// A resource that was dropped.
    gone: ResourceAny,
    snapshots: Vec<Vec<u8>>,
    tally: Tally,
}

/// How often each call was answered and refused.
type Tally = BTreeMap<&'static str, (u32, u32)>;

// === impl Bench ===

impl Bench {
    pub(crate) fn new(mut host: Warmroute, payloads: Vec<Vec<u8>>) -> Self {
        let Warmroute { store, world } = &mut host;
        let indexes_of = world.warmroute_routing_prefix_index().index();
        let options = prefix_index::Options { block_size: 4, max_orphans: 100 };
        let mut index = || indexes_of.call_open(&mut *store, options).unwrap().unwrap();
        let (indexes, gone): (Vec<_>, _) = ((0..KEPT).map(|_| index()).collect(), index());
        gone.resource_drop(&mut *store).unwrap();
        let settings =
            router::Settings { policy: router::Policy::Standard, max_age_ms: None, booking_life_ms: 50 };
        let routers_of = world.warmroute_routing_router().router();
        let mut router =
            |index: &ResourceAny| routers_of.call_open(&mut *store, *index, settings).unwrap().unwrap();
        let routers = indexes.iter().map(&mut router).collect();
        let subscriptions_of = world.warmroute_routing_events().subscription();
        let mut dice = Dice(0x5eed);
        let mut subscription = |index: &ResourceAny| {
            subscriptions_of
                .call_open(&mut *store, *index, dice.worker(), events::Engine::Vllm, true)
                .unwrap()
        };
        let subscriptions = indexes.iter().map(&mut subscription).collect();
        let (snapshots, tally) = (vec![Vec::new(); KEPT], Tally::new());
        Self { host, dice, payloads, indexes, routers, subscriptions, gone, snapshots, tally }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// One random call. An error is one of the crossing: a trap.
    pub(crate) fn call(&mut self) -> Result<()> {
        match self.dice.below(24) {
            0 => self.hash(),
            1..=9 => self.index(),
            10..=18 => self.router(),
            19..=22 => self.events(),
            _ => self.dropped(),
        }
    }

    fn hash(&mut self) -> Result<()> {
        let Self { host: Warmroute { store, world }, dice, tally, .. } = self;
        let extras =
            hashing::Extras { media: dice.list(|dice| dice.list(Dice::edge)), eagle: dice.below(2) == 0 };
        let block_size = dice.edge() as u32;
        let extras = (dice.below(2) == 0).then_some(&extras);
        let (tokens, namespace) = (dice.tokens(), dice.namespace());
        let calls = world.warmroute_routing_hashing();
        let hashes = calls.call_hash_tokens(&mut *store, &tokens, block_size, &namespace, extras)?;
        count(tally, "hash-tokens", hashes.is_ok());
        Ok(())
    }

    fn index(&mut self) -> Result<()> {
        let Self { host: Warmroute { store, world }, dice, indexes, snapshots, tally, .. } = self;
        let calls = world.warmroute_routing_prefix_index().index();
        let place = dice.below(KEPT as u64) as usize;
        let index = indexes[place];
        match dice.below(40) {
            0 => {
                let opened = calls.call_open(&mut *store, dice.options())?;
                count(tally, "index.open", opened.is_ok());
                if let Ok(opened) = opened {
                    std::mem::replace(&mut indexes[place], opened).resource_drop(&mut *store)?;
                }
            }
            1 | 2 => {
                let bytes = snapshot(dice, snapshots);
                let saved = match dice.below(3) {
                    0 => prefix_index::Saved::Base64("no base64!".to_owned()),
                    1 => prefix_index::Saved::Base64(STANDARD.encode(bytes)),
                    _ => prefix_index::Saved::Bytes(bytes),
                };
                let restored = calls.call_restore(&mut *store, &saved)?;
                count(tally, "index.restore", restored.is_ok());
                if let Ok(restored) = restored {
                    std::mem::replace(&mut indexes[place], restored).resource_drop(&mut *store)?;
                }
            }
            3 | 4 => {
                // An index that a huge list went into is left out: all that follows would be copies of it.
                let taken = calls.call_snapshot(&mut *store, index)?.ok();
                snapshots[place] = taken.filter(|bytes| bytes.len() < 100_000).unwrap_or_default();
            }
            5..12 => drop(calls.call_add_worker(&mut *store, index, dice.worker())?),
            12 => {
                let removed = calls.call_remove_worker(&mut *store, index, dice.worker())?;
                count(tally, "index.remove-worker", removed);
            }
            13 => {
                let reset = calls.call_reset_worker(&mut *store, index, dice.worker())?;
                count(tally, "index.reset-worker", reset);
            }
            14..20 => {
                let found = calls.call_matches(&mut *store, index, &dice.prompt())?;
                count(tally, "index.matches", found.is_ok_and(|found| !found.is_empty()));
            }
            20..22 => {
                calls.call_stats(&mut *store, index)?;
                calls.call_workers(&mut *store, index)?;
                calls.call_block_size(&mut *store, index)?;
            }
            _ => {
                let events = dice.list(Dice::event);
                let (worker, now_ms) = (dice.worker(), dice.edge());
                let outcome = calls.call_apply(&mut *store, index, worker, &events, now_ms)?;
                count(tally, "index.apply", outcome.failed.is_empty());
            }
        }
        Ok(())
    }

    fn router(&mut self) -> Result<()> {
        let Self { host: Warmroute { store, world }, dice, indexes, routers, tally, .. } = self;
        let (calls, of_router) =
            (world.warmroute_routing_router(), world.warmroute_routing_router().router());
        let place = dice.below(KEPT as u64) as usize;
        let desk = routers[place];
        let name = format!("r{}", dice.below(50));
        let (ranked, book, now_ms) = (dice.edge() as u32, dice.below(2) == 0, dice.edge());
        match dice.below(12) {
            0 => {
                let opened = of_router.call_open(&mut *store, indexes[place], dice.settings())?;
                count(tally, "router.open", opened.is_ok());
                if let Ok(opened) = opened {
                    std::mem::replace(&mut routers[place], opened).resource_drop(&mut *store)?;
                }
            }
            1 => {
                let known = of_router.call_prefill_complete(&mut *store, desk, &name)?;
                count(tally, "router.prefill-complete", known);
            }
            2 => count(tally, "router.free", of_router.call_free(&mut *store, desk, &name)?),
            3 => {
                let loads = dice.list(|dice| (dice.worker(), dice.load()));
                of_router.call_set_loads(&mut *store, desk, &loads)?;
                of_router.call_loads(&mut *store, desk)?;
            }
            4 => {
                let question = router::Question {
                    prompt_tokens: dice.edge(),
                    block_size: dice.edge() as u32,
                    depths: dice.depths(),
                    load: dice.load(),
                    least_prefill_tokens: dice.edge(),
                };
                calls.call_cost_of(&mut *store, dice.policy(), question)?;
            }
            5..=7 => {
                let [tokens, candidates] = dice.texts();
                let (lora, salt) = ("l".repeat(dice.below(3) as usize), "s".repeat(dice.below(3) as usize));
                let answer = of_router.call_select_line(
                    &mut *store,
                    desk,
                    &name,
                    &tokens,
                    &lora,
                    &salt,
                    &candidates,
                    ranked,
                    book,
                    now_ms,
                )?;
                assert!(answer.starts_with("ok ") || answer.starts_with("refused "), "{answer}");
                count(tally, "router.select-line", answer.starts_with("ok "));
            }
            _ => {
                let (prompt, candidates) = (dice.prompt(), dice.candidates());
                let options = router::Options { ranked, book, now_ms };
                let answer =
                    of_router.call_select_worker(&mut *store, desk, &name, &prompt, &candidates, options)?;
                count(tally, "router.select-worker", answer.is_ok());
            }
        }
        Ok(())
    }

    fn events(&mut self) -> Result<()> {
        let Self { host: Warmroute { store, world }, dice, indexes, subscriptions, payloads, tally, .. } =
            self;
        let calls = world.warmroute_routing_events().subscription();
        let place = dice.below(KEPT as u64) as usize;
        let (subscription, now_ms) = (subscriptions[place], dice.edge());
        // In order as a rule, so that some of it is applied.
        let sequence = if dice.below(8) == 0 {
            dice.edge()
        } else {
            calls.call_counts(&mut *store, subscription)?.payloads
        };
        let payload = &payloads[dice.below(payloads.len() as u64) as usize];
        let mut payload = STANDARD.encode(dice.damage(payload.clone()));
        if dice.below(20) == 0 {
            payload.push('!');
        }
        match dice.below(16) {
            0 => {
                use events::Engine::{LlmdSim, Sglang, Trtllm, Vllm};
                let engine = [Vllm, Sglang, Trtllm, LlmdSim][dice.below(4) as usize];
                let (worker, can_replay) = (dice.worker(), dice.below(2) == 0);
                let opened = calls.call_open(&mut *store, indexes[place], worker, engine, can_replay)?;
                std::mem::replace(&mut subscriptions[place], opened).resource_drop(&mut *store)?;
            }
            1 => drop(calls.call_connected(&mut *store, subscription, now_ms)?),
            2 => {
                let whole = dice.below(2) == 0;
                calls.call_replay_ended(&mut *store, subscription, whole, now_ms)?;
            }
            3 => drop(calls.call_retry(&mut *store, subscription, now_ms)?),
            4 => drop(calls.call_probe(&mut *store, subscription, now_ms)?),
            5 | 6 => drop(calls.call_replayed(&mut *store, subscription, sequence, &payload, now_ms)?),
            _ => {
                let before = calls.call_counts(&mut *store, subscription)?.undecodable;
                calls.call_live(&mut *store, subscription, sequence, &payload, now_ms)?;
                let after = calls.call_counts(&mut *store, subscription)?.undecodable;
                count(tally, "subscription.live", after == before);
            }
        }
        Ok(())
    }

    /// A handle to what is no more is the host's own error, and the instance stays whole.
    fn dropped(&mut self) -> Result<()> {
        let Self { host: Warmroute { store, world }, dice, gone, .. } = self;
        let calls = world.warmroute_routing_prefix_index().index();
        assert!(calls.call_matches(&mut *store, *gone, &dice.prompt()).is_err());
        Ok(())
    }
}

/// A snapshot that was taken, damaged, with its checksum right or wrong; or something else entirely.
fn snapshot(dice: &mut Dice, taken: &[Vec<u8>]) -> Vec<u8> {
    let whole = taken[dice.below(KEPT as u64) as usize].clone();
    match dice.below(4) {
        0 => whole,
        1 => dice.damage(whole),
        2 => dice.list(Dice::edge).into_iter().map(|byte| byte as u8).collect(),
        _ => {
            let body = whole.len().saturating_sub(8);
            let mut content = dice.damage(whole[..body].to_vec());
            content.extend(xxh3_64(&content).to_le_bytes());
            content
        }
    }
}

fn count(tally: &mut Tally, call: &'static str, answered: bool) {
    let (all_answered, all_refused) = tally.entry(call).or_default();
    *if answered { all_answered } else { all_refused } += 1;
}
