//! Whatever a host passes, the component answers with a value: nothing traps.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

use warmroute_host::{Warmroute, hashing, prefix_index, router, types};
use wasmtime::component::ResourceAny;

const CALLS: u32 = 100_000;

/// Draws numbers: the same for each run (xorshift64*).
struct Dice(u64);

impl Dice {
    fn any(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.any() >> 33) % bound
    }

    /// Small as a rule, at times as large as can be.
    fn edge(&mut self) -> u64 {
        match self.below(8) {
            0 => u64::MAX,
            1 => 0,
            2 => self.any(),
            _ => self.below(20),
        }
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let length = match self.below(200) {
            0 => 20_000,
            1..20 => 0,
            _ => self.below(40),
        };
        (0..length).map(|_| item(self)).collect()
    }

    fn tokens(&mut self) -> types::Tokens {
        if self.below(3) == 0 {
            const TEXTS: [&str; 6] =
                ["", "AQAAAA==", "AQAA", "no base64!", "\u{1f600}", "AQAAAAIAAAADAAAABAAAAA=="];
            return types::Tokens::Base64(TEXTS[self.below(6) as usize].to_owned());
        }
        types::Tokens::Ids(self.list(|dice| dice.edge() as u32))
    }

    fn name(&mut self) -> Option<String> {
        (self.below(3) == 0).then(|| "n".repeat(self.below(30) as usize))
    }

    fn namespace(&mut self) -> types::Namespace {
        types::Namespace { lora: self.name(), salt: self.name() }
    }

    fn prompt(&mut self) -> types::Prompt {
        match self.below(4) {
            0 => types::Prompt::Blocks(self.list(Self::edge)),
            1 => types::Prompt::Sequences(self.list(Self::edge)),
            _ => types::Prompt::Tokens((self.tokens(), self.namespace())),
        }
    }

    fn worker(&mut self) -> types::Worker {
        types::Worker { id: self.edge(), rank: self.below(3) as u32 }
    }

    fn tier(&mut self) -> types::Tier {
        [types::Tier::Gpu, types::Tier::Cpu, types::Tier::Disk, types::Tier::External][self.below(4) as usize]
    }

    fn event(&mut self) -> prefix_index::Event {
        match self.below(8) {
            0 => prefix_index::Event::Cleared,
            1 | 2 => prefix_index::Event::Removed(prefix_index::Removed {
                hashes: self.list(Self::edge),
                left: self.list(|dice| dice.edge() as u32),
                tier: self.tier(),
                group: self.below(3) as u32,
            }),
            _ => prefix_index::Event::Stored(self.stored()),
        }
    }

    fn stored(&mut self) -> prefix_index::Stored {
        let hashes = self.list(Self::edge);
        let aligned: Vec<u32> = hashes.iter().flat_map(|hash| [*hash as u32; 4]).collect();
        let content = match self.below(6) {
            0 => prefix_index::Content::Unknown,
            1 => prefix_index::Content::Blocks(self.list(Self::edge)),
            2 => prefix_index::Content::Tokens((self.tokens(), self.edge() as u32)),
            3 => prefix_index::Content::Media((
                types::Tokens::Ids(aligned),
                4,
                self.list(|dice| dice.list(Self::edge)),
            )),
            4 => prefix_index::Content::Blocks(hashes.clone()),
            _ => prefix_index::Content::Tokens((types::Tokens::Ids(aligned), 4)),
        };
        prefix_index::Stored {
            hashes,
            parent: (self.below(2) == 0).then(|| self.edge()),
            content,
            lora: self.name(),
            salt: self.name(),
            tier: self.tier(),
            group: self.below(3) as u32,
        }
    }

    fn weight(&mut self) -> f64 {
        [0.0, 1.0, 0.5, -1.0, f64::NAN, f64::INFINITY, 1e300][self.below(7) as usize]
    }

    fn policy(&mut self) -> router::Policy {
        match self.below(6) {
            0 => router::Policy::Sticky,
            1 => router::Policy::Prefix,
            2 => router::Policy::LeastLoad,
            3 => router::Policy::Cost(router::Weights {
                prefill_scale: self.weight(),
                gpu_credit: self.weight(),
                cpu_credit: self.weight(),
                disk_credit: self.weight(),
                credit_decay: self.weight(),
                request_weight: self.weight(),
            }),
            _ => router::Policy::Standard,
        }
    }

    fn load(&mut self) -> types::Load {
        types::Load { requests: self.edge() as u32, prefill_tokens: self.edge(), blocks: self.edge() }
    }

    fn candidates(&mut self) -> router::Candidates {
        match self.below(3) {
            0 => router::Candidates::All,
            1 => router::Candidates::Ids(self.list(Self::edge)),
            _ => router::Candidates::Workers(self.list(Self::worker)),
        }
    }
}

/// A few indexes and routers that come and go.
struct Bench {
    host: Warmroute,
    dice: Dice,
    indexes: Vec<ResourceAny>,
    routers: Vec<ResourceAny>,
}

impl Bench {
    /// One random call. An error is one of the crossing: a trap.
    fn call(&mut self) -> wasmtime::Result<()> {
        let Self { host: Warmroute { store, world }, dice, indexes, routers } = self;
        let (index_calls, router_calls) =
            (world.warmroute_routing_prefix_index(), world.warmroute_routing_router());
        let (of_index, of_router) = (index_calls.index(), router_calls.router());
        let index = indexes[dice.below(indexes.len() as u64) as usize];
        let desk = routers[dice.below(routers.len() as u64) as usize];
        let name = format!("r{}", dice.below(50));
        match dice.below(16) {
            0 => {
                let extras = hashing::Extras {
                    media: dice.list(|dice| dice.list(Dice::edge)),
                    eagle: dice.below(2) == 0,
                };
                let block_size = dice.edge() as u32;
                let extras = (dice.below(2) == 0).then_some(&extras);
                let (tokens, namespace) = (dice.tokens(), dice.namespace());
                let _ = world.warmroute_routing_hashing().call_hash_tokens(
                    &mut *store,
                    &tokens,
                    block_size,
                    &namespace,
                    extras,
                )?;
            }
            1 => {
                let options =
                    prefix_index::Options { block_size: dice.edge() as u32, max_orphans: dice.edge() as u32 };
                if let Ok(opened) = of_index.call_open(&mut *store, options)? {
                    let place = dice.below(indexes.len() as u64) as usize;
                    std::mem::replace(&mut indexes[place], opened).resource_drop(&mut *store)?;
                }
            }
            2 => {
                let settings = router::Settings {
                    policy: dice.policy(),
                    max_age_ms: (dice.below(2) == 0).then(|| dice.edge()),
                    booking_life_ms: dice.edge(),
                };
                if let Ok(opened) = of_router.call_open(&mut *store, index, settings)? {
                    let place = dice.below(routers.len() as u64) as usize;
                    std::mem::replace(&mut routers[place], opened).resource_drop(&mut *store)?;
                }
            }
            3 | 4 => drop(of_index.call_add_worker(&mut *store, index, dice.worker())?),
            5 => drop(of_index.call_remove_worker(&mut *store, index, dice.worker())?),
            6 => drop(of_index.call_reset_worker(&mut *store, index, dice.worker())?),
            7 => drop(of_index.call_matches(&mut *store, index, &dice.prompt())?),
            8 => {
                of_index.call_stats(&mut *store, index)?;
                of_index.call_workers(&mut *store, index)?;
            }
            9 => drop(of_router.call_prefill_complete(&mut *store, desk, &name)?),
            10 => drop(of_router.call_free(&mut *store, desk, &name)?),
            11 => {
                let loads = dice.list(|dice| (dice.worker(), dice.load()));
                of_router.call_set_loads(&mut *store, desk, &loads)?;
                of_router.call_loads(&mut *store, desk)?;
            }
            12 => {
                let question = router::Question {
                    prompt_tokens: dice.edge(),
                    block_size: dice.edge() as u32,
                    depths: types::Depths {
                        gpu: dice.edge() as u32,
                        cpu: 3,
                        disk: dice.edge() as u32,
                        external: 9,
                    },
                    load: dice.load(),
                    least_prefill_tokens: dice.edge(),
                };
                router_calls.call_cost_of(&mut *store, dice.policy(), question)?;
            }
            13 => {
                let events = dice.list(Dice::event);
                let (worker, now_ms) = (dice.worker(), dice.edge());
                of_index.call_apply(&mut *store, index, worker, &events, now_ms)?;
            }
            _ => {
                let (prompt, candidates) = (dice.prompt(), dice.candidates());
                let options = router::Options {
                    ranked: dice.edge() as u32,
                    book: dice.below(2) == 0,
                    now_ms: dice.edge(),
                };
                drop(of_router.call_select_worker(
                    &mut *store,
                    desk,
                    &name,
                    &prompt,
                    &candidates,
                    options,
                )?);
            }
        }
        Ok(())
    }
}

#[test]
fn a_hundred_thousand_random_calls_do_not_trap() {
    let mut host = Warmroute::open(&Warmroute::built_component().unwrap()).unwrap();
    let Warmroute { store, world } = &mut host;
    let options = prefix_index::Options { block_size: 4, max_orphans: 100 };
    let index_calls = world.warmroute_routing_prefix_index();
    let indexes: Vec<_> =
        (0..3).map(|_| index_calls.index().call_open(&mut *store, options).unwrap().unwrap()).collect();
    let settings =
        router::Settings { policy: router::Policy::Standard, max_age_ms: None, booking_life_ms: 50 };
    let router_calls = world.warmroute_routing_router();
    let routers = indexes
        .iter()
        .map(|index| router_calls.router().call_open(&mut *store, *index, settings).unwrap().unwrap())
        .collect();
    let mut bench = Bench { host, dice: Dice(0x5eed), indexes, routers };
    for call in 0..CALLS {
        if let Err(trap) = bench.call() {
            panic!("call {call}: {trap:?}");
        }
    }
}

#[test]
fn a_handle_that_was_dropped_is_an_error_and_leaves_the_instance_whole() {
    let mut host = Warmroute::open(&Warmroute::built_component().unwrap()).unwrap();
    let Warmroute { store, world } = &mut host;
    let index_calls = world.warmroute_routing_prefix_index();
    let options = prefix_index::Options { block_size: 4, max_orphans: 100 };
    let (gone, index) = (
        index_calls.index().call_open(&mut *store, options).unwrap().unwrap(),
        index_calls.index().call_open(&mut *store, options).unwrap().unwrap(),
    );
    gone.resource_drop(&mut *store).unwrap();
    assert!(index_calls.index().call_stats(&mut *store, gone).is_err());
    assert_eq!(index_calls.index().call_stats(&mut *store, index).unwrap().workers, 0);
}
