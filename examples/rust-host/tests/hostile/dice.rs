//! What a host may pass, drawn: the small and the likely as a rule, at times what no host should pass.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use warmroute_host::{prefix_index, router, types};

/// Draws numbers: the same for each run (xorshift64*).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn any(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.any() >> 33) % bound
    }

    /// Small as a rule, at times as large as can be.
    pub(crate) fn edge(&mut self) -> u64 {
        match self.below(8) {
            0 => u64::MAX,
            1 => 0,
            2 => self.any(),
            _ => self.below(20),
        }
    }

    pub(crate) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let length = match self.below(2_000) {
            0 => 20_000,
            1..200 => 0,
            _ => self.below(40),
        };
        (0..length).map(|_| item(self)).collect()
    }

    pub(crate) fn tokens(&mut self) -> types::Tokens {
        if self.below(3) == 0 {
            const TEXTS: [&str; 6] =
                ["", "AQAAAA==", "AQAA", "no base64!", "\u{1f600}", "AQAAAAIAAAADAAAABAAAAA=="];
            return types::Tokens::Base64(TEXTS[self.below(6) as usize].to_owned());
        }
        if self.below(4) > 0 {
            return types::Tokens::Ids(known_tokens(self.below(200)));
        }
        types::Tokens::Ids(self.list(|dice| dice.edge() as u32))
    }

    fn name(&mut self) -> Option<String> {
        (self.below(8) == 0).then(|| "n".repeat(self.below(30) as usize))
    }

    /// Tokens and candidates as `select-line` takes them.
    pub(crate) fn texts(&mut self) -> [String; 2] {
        let ids: Vec<u8> =
            self.list(|dice| dice.below(20) as u32).iter().flat_map(|id| id.to_le_bytes()).collect();
        let tokens = if self.below(6) == 0 { "AQAA!".to_owned() } else { STANDARD.encode(ids) };
        let candidates = match self.below(4) {
            0 => "-1, x".to_owned(),
            1 => "*".to_owned(),
            _ => self.list(|dice| dice.edge().to_string()).join(" "),
        };
        [tokens, candidates]
    }

    pub(crate) fn namespace(&mut self) -> types::Namespace {
        types::Namespace { lora: self.name(), salt: self.name() }
    }

    pub(crate) fn prompt(&mut self) -> types::Prompt {
        match self.below(4) {
            0 => types::Prompt::Blocks(self.list(Self::edge)),
            1 => types::Prompt::Sequences(self.list(Self::edge)),
            _ => types::Prompt::Tokens((self.tokens(), self.namespace())),
        }
    }

    pub(crate) fn worker(&mut self) -> types::Worker {
        if self.below(8) == 0 {
            return types::Worker { id: self.edge(), rank: self.edge() as u32 };
        }
        types::Worker { id: self.below(4), rank: 0 }
    }

    fn tier(&mut self) -> types::Tier {
        [types::Tier::Gpu, types::Tier::Cpu, types::Tier::Disk, types::Tier::External][self.below(4) as usize]
    }

    pub(crate) fn event(&mut self) -> prefix_index::Event {
        match self.below(64) {
            0 => prefix_index::Event::Cleared,
            1..8 => prefix_index::Event::Removed(prefix_index::Removed {
                hashes: self.list(Self::edge),
                left: self.list(|dice| dice.edge() as u32),
                tier: self.tier(),
                group: self.group(),
            }),
            _ => prefix_index::Event::Stored(self.stored()),
        }
    }

    fn stored(&mut self) -> prefix_index::Stored {
        // Names that are told twice in one event rename the first block, of which all others are children.
        let hashes = if self.below(2) == 0 { self.list(Self::edge) } else { (0..self.below(40)).collect() };
        let aligned = known_tokens(4 * hashes.len() as u64);
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
            parent: (self.below(4) == 0).then(|| self.edge()),
            content,
            lora: self.name(),
            salt: self.name(),
            tier: self.tier(),
            group: self.group(),
        }
    }

    fn group(&mut self) -> u32 {
        if self.below(8) == 0 { self.edge() as u32 } else { self.below(2) as u32 }
    }

    pub(crate) fn depths(&mut self) -> types::Depths {
        let mut depth = || self.edge() as u32;
        types::Depths { gpu: depth(), cpu: depth(), disk: depth(), external: depth() }
    }

    pub(crate) fn options(&mut self) -> prefix_index::Options {
        // Large blocks leave few prompts with a hash, so most indexes have small ones.
        let block_size = if self.below(4) == 0 { self.edge() as u32 } else { 4 };
        prefix_index::Options { block_size, max_orphans: self.edge() as u32 }
    }

    pub(crate) fn settings(&mut self) -> router::Settings {
        router::Settings {
            policy: self.policy(),
            max_age_ms: (self.below(2) == 0).then(|| self.edge()),
            booking_life_ms: self.edge(),
        }
    }

    /// Bytes, changed in a few places, cut, or left as they are.
    pub(crate) fn damage(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.below(4) == 0 {
            bytes.truncate(self.below(bytes.len() as u64 + 1) as usize);
        }
        for _ in 0..self.below(4) {
            if !bytes.is_empty() {
                let place = self.below(bytes.len() as u64) as usize;
                bytes[place] = self.any() as u8;
            }
        }
        bytes
    }

    fn weight(&mut self) -> f64 {
        [0.0, 1.0, 0.5, -1.0, f64::NAN, f64::INFINITY, 1e300][self.below(7) as usize]
    }

    pub(crate) fn policy(&mut self) -> router::Policy {
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

    pub(crate) fn load(&mut self) -> types::Load {
        types::Load { requests: self.edge() as u32, prefill_tokens: self.edge(), blocks: self.edge() }
    }

    pub(crate) fn candidates(&mut self) -> router::Candidates {
        match self.below(3) {
            0 => router::Candidates::All,
            1 => router::Candidates::Ids(self.list(Self::edge)),
            _ => router::Candidates::Workers(self.list(Self::worker)),
        }
    }
}

/// The first tokens of the one prompt that is stored and asked for again and again.
fn known_tokens(count: u64) -> Vec<u32> {
    (0..count as u32).collect()
}
