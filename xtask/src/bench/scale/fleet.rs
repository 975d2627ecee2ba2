//! The engines: as many as a large fleet has, each a publisher of events of its own with sockets of its own, and none that
//! serves. What they say they hold is made up as a fleet would hold it.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use warmroute_e2e::engine::Endpoints;
use warmroute_simengine::Config;
use warmroute_simengine::cache::{BlockHash, CacheEvent, ChainHasher, StoredBlocks};
use warmroute_simengine::events::{self, EventSockets, Publisher};

pub(super) const BLOCK_TOKENS: usize = 16;

/// Blocks that one event stores: a step of 512 tokens.
const EVENT_BLOCKS: usize = 32;

/// Prompts begin with one of so many others, of so many blocks.
const SYSTEM_PROMPTS: u64 = 50;
const SYSTEM_BLOCKS: usize = 64;

/// Blocks of a prompt of its own.
const OWN_BLOCKS: usize = 192;

/// Each of so many prompts has gone to a second worker, too.
const TWICE: u64 = 4;

/// All engines, and what they have said.
pub(super) struct Fleet {
    engines: Vec<Engine>,
    hasher: ChainHasher,
    /// Prompts so far.
    prompts: u64,
    /// Who holds which system prompt.
    systems: HashSet<(usize, u64)>,
    /// Pairs of worker and block that were told of.
    pub(super) pairs: u64,
    /// Events that were published.
    pub(super) events: u64,
}

struct Engine {
    address: SocketAddr,
    publisher: Publisher,
    sockets: EventSockets,
}

// === impl Fleet ===

impl Fleet {
    /// So many engines, which hold nothing.
    pub(super) async fn start(engines: usize) -> Result<Self> {
        let mut fleet = Self {
            engines: Vec::with_capacity(engines),
            hasher: ChainHasher::new(1),
            prompts: 0,
            systems: HashSet::new(),
            pairs: 0,
            events: 0,
        };
        for number in 0..engines {
            fleet.engines.push(Engine::start(number).await?);
        }
        Ok(fleet)
    }

    /// Where they would serve, and where they speak.
    pub(super) fn endpoints(&self) -> Vec<Endpoints> {
        let endpoints = self.engines.iter().map(|engine| Endpoints {
            address: engine.address,
            events: engine.sockets.events.clone(),
            replay: engine.sockets.replay.clone().unwrap_or_default(),
        });
        endpoints.collect()
    }

    /// The next prompt is computed, by one worker or two of them.
    pub(super) fn compute_next(&mut self) {
        let prompt = self.prompts;
        self.prompts += 1;
        let engines = self.engines.len() as u64;
        // Neighbours in time are no neighbours in the fleet.
        let first = (prompt.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % engines;
        let second =
            prompt.is_multiple_of(TWICE).then_some((first + 1 + prompt % (engines - 1).max(1)) % engines);
        for worker in [Some(first), second].into_iter().flatten() {
            self.compute(worker as usize, prompt);
        }
    }

    fn compute(&mut self, worker: usize, prompt: u64) {
        let system = prompt % SYSTEM_PROMPTS;
        let head: Vec<u32> = tokens(system, SYSTEM_BLOCKS);
        let hashes = self.hashes(None, &head);
        if self.systems.insert((worker, system)) {
            self.store(worker, None, &hashes, &head);
        }
        let own = tokens(SYSTEM_PROMPTS + prompt, OWN_BLOCKS);
        let parent = hashes.last().copied();
        let hashes = self.hashes(parent, &own);
        self.store(worker, parent, &hashes, &own);
    }

    /// A prompt that nobody else has is computed by a worker; returns the worker's address.
    pub(super) fn compute_here(&mut self, worker: usize, tokens: &[u32]) -> Option<SocketAddr> {
        let hashes = self.hashes(None, tokens);
        self.store(worker, None, &hashes, tokens);
        self.engines.get(worker).map(|engine| engine.address)
    }

    fn hashes(&self, mut parent: Option<BlockHash>, tokens: &[u32]) -> Vec<BlockHash> {
        let blocks = tokens.chunks_exact(BLOCK_TOKENS).map(|block| {
            let hash = self.hasher.block(parent.as_ref(), block, &[]);
            parent = Some(hash);
            hash
        });
        blocks.collect()
    }

    fn store(&mut self, worker: usize, mut parent: Option<BlockHash>, hashes: &[BlockHash], tokens: &[u32]) {
        let Some(engine) = self.engines.get_mut(worker) else { return };
        for (hashes, tokens) in hashes.chunks(EVENT_BLOCKS).zip(tokens.chunks(EVENT_BLOCKS * BLOCK_TOKENS)) {
            let stored = StoredBlocks {
                hashes: hashes.to_vec(),
                parent,
                tokens: tokens.to_vec(),
                lora: None,
                extra_keys: vec![Vec::new(); hashes.len()],
            };
            engine.publisher.publish(&[CacheEvent::Stored(stored)]);
            parent = hashes.last().copied();
            self.pairs += hashes.len() as u64;
            self.events += 1;
        }
    }

    /// Closes all sockets.
    pub(super) async fn stop(self) {
        for engine in self.engines {
            drop(engine.publisher);
            engine.sockets.stop().await;
        }
    }
}

// === impl Engine ===

impl Engine {
    async fn start(number: usize) -> Result<Self> {
        // Nobody serves there: what is measured asks no engine.
        let [.., high, low] = (number as u32).to_be_bytes();
        let address = SocketAddr::from((Ipv4Addr::new(127, 1, high, low), 8000));
        let flags = ["simengine", "--events", "tcp://127.0.0.1:0", "--replay", "tcp://127.0.0.1:0"];
        let config: Config = clap::Parser::try_parse_from(flags)?;
        // A gap that is asked for is filled from here; a whole cache would not fit into memory so many times.
        let config = Config { replay_buffer: 1_000, ..config };
        let started = events::start(&config).await?;
        let (publisher, sockets) = started.context("an engine without an event endpoint")?;
        Ok(Self { address, publisher, sockets })
    }
}

/// Tokens that begin with none of another seed's.
fn tokens(seed: u64, blocks: usize) -> Vec<u32> {
    warmroute_e2e::tokens(seed, blocks * BLOCK_TOKENS)
}
