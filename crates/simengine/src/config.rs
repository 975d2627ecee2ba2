//! The engine's flags.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::scheduler::{Limits, TimeModel};

/// A simulated inference engine: OpenAI API, block cache with LRU eviction, vLLM's event wire, a prefill-time model.
#[derive(Clone, Debug, Parser)]
#[command(name = "warmroute-simengine", version)]
pub struct Config {
    /// HTTP address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "IP:PORT")]
    pub listen: SocketAddr,

    /// The base model's name
    #[arg(long, default_value = "sim", value_name = "NAME")]
    pub model: String,

    /// An adapter that is served too; repeatable
    #[arg(long = "lora", value_name = "NAME")]
    pub loras: Vec<String>,

    /// Tokens in a block
    #[arg(long, default_value = "16", value_name = "TOKENS")]
    pub block_size: NonZeroU32,

    /// The cache's capacity in blocks
    #[arg(long, default_value = "4096", value_name = "BLOCKS")]
    pub num_blocks: NonZeroU32,

    /// PUB endpoint to bind for KV events, as tcp://127.0.0.1:5557; port 0 takes a free one
    #[arg(long, value_name = "ENDPOINT")]
    pub events: Option<String>,

    /// ROUTER endpoint to bind for the replay of KV events; needs --events
    #[arg(long, value_name = "ENDPOINT", requires = "events")]
    pub replay: Option<String>,

    /// How events are encoded
    #[arg(long, value_enum, default_value_t = EventFormat::Map)]
    pub event_format: EventFormat,

    /// How block hashes are encoded
    #[arg(long, value_enum, default_value_t = HashFormat::Int)]
    pub hash_format: HashFormat,

    /// Batches kept for replay
    #[arg(long, default_value_t = 10_000, value_name = "BATCHES")]
    pub replay_buffer: usize,

    /// The events' topic
    #[arg(long, default_value = "", value_name = "TOPIC")]
    pub topic: String,

    /// Time to first token of a fully cached prompt, in ms
    #[arg(long, default_value_t = 5, value_name = "MS")]
    pub base_ms: u32,

    /// Added per uncached prompt token, in µs
    #[arg(long, default_value_t = 100, value_name = "US")]
    pub prefill_us_per_token: u32,

    /// Per output token after the first, in ms
    #[arg(long, default_value_t = 2, value_name = "MS")]
    pub decode_ms_per_token: u32,

    /// Requests that run at once; more wait in a queue
    #[arg(long, default_value = "16", value_name = "REQUESTS")]
    pub max_running: NonZeroUsize,

    /// Requests that wait; more are refused with 503
    #[arg(long, default_value_t = 1024, value_name = "REQUESTS")]
    pub max_waiting: usize,
}

/// How events are encoded in msgpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventFormat {
    /// As vLLM 0.32: maps with `type` first; replies to a replay carry the topic
    Map,
    /// As vLLM 0.22 and 0.23: arrays with all fields; replies to a replay carry no topic
    Array,
}

/// How block hashes are encoded in msgpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HashFormat {
    /// The low 64 bits, as an unsigned integer
    Int,
    /// All 32 bytes
    Bytes,
}

// === impl Config ===

impl Config {
    /// [`Self::block_size`] as the cache wants it.
    pub(crate) fn block_tokens(&self) -> NonZeroUsize {
        NonZeroUsize::try_from(self.block_size).unwrap_or(NonZeroUsize::MAX)
    }

    pub(crate) fn cache_blocks(&self) -> usize {
        usize::try_from(self.num_blocks.get()).unwrap_or(usize::MAX)
    }

    pub(crate) fn time_model(&self) -> TimeModel {
        TimeModel {
            base: Duration::from_millis(self.base_ms.into()),
            prefill_per_token: Duration::from_micros(self.prefill_us_per_token.into()),
            decode_per_token: Duration::from_millis(self.decode_ms_per_token.into()),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { max_running: self.max_running.get(), max_waiting: self.max_waiting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = Config::parse_from(["simengine"]);
        assert_eq!(config.listen.to_string(), "127.0.0.1:0");
        assert_eq!(
            (config.model.as_str(), config.block_size.get(), config.num_blocks.get()),
            ("sim", 16, 4096)
        );
        assert_eq!((config.event_format, config.hash_format), (EventFormat::Map, HashFormat::Int));
        assert_eq!((config.base_ms, config.prefill_us_per_token, config.decode_ms_per_token), (5, 100, 2));
        assert_eq!((config.max_running.get(), config.max_waiting, config.replay_buffer), (16, 1024, 10_000));
    }

    #[test]
    fn refuses_impossible_values() {
        for args in [
            ["--block-size", "0"],
            ["--num-blocks", "0"],
            ["--max-running", "0"],
            ["--replay", "tcp://[::1]:1"],
        ] {
            assert!(Config::try_parse_from(["simengine"].into_iter().chain(args)).is_err(), "{args:?}");
        }
    }
}
