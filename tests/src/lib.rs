//! The stack under test: Envoy with warmroute, the collector and simulated engines, as real processes on this machine.
//!
//! A scenario starts a [`Stack`], talks to it through a [`Client`], breaks parts of it and looks at what Envoy counted:
//!
//! ```no_run
//! use serde_json::json;
//! use warmroute_e2e::{Client, Publisher, Stack, tokens};
//!
//! # async fn scenario() -> anyhow::Result<()> {
//! let mut stack = Stack::builder("warm_prompt").engines(2).publisher(Publisher::Singleton).start().await?;
//! stack.wait_until_steering().await?;
//! let client = Client::http1(stack.url())?;
//! let cold = client.stream(&tokens(7, 512), 4).await?;
//! stack.engine_mut(0)?.kill_hard()?;
//! let again = client.stream(&tokens(7, 512), 4).await?;
//! assert_eq!(stack.envoy.prometheus().await?.sum("warmroute_requests_total", &[("outcome", "steered")]), 1.0);
//! stack.stop().await
//! # }
//! ```
//!
//! Everything listens on 127.0.0.1 only. What a scenario starts ends with it, however it ends: a value dropped kills its
//! process, and a watchdog kills it should this process die first.

pub mod bootstrap;
pub mod client;
pub mod collector;
pub mod dice;
pub mod engine;
pub mod envoy;
pub mod envoy_binary;
pub mod exactness;
pub mod ports;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod raw;
pub mod real;
pub mod rounds;
pub mod scripted_feed;
pub mod stack;
pub mod upstream;
pub mod venv;
pub mod wait;
pub mod workspace;

pub use bootstrap::{Bootstrap, Publisher};
pub use client::{Answer, Client, tokens};
pub use collector::Collector;
pub use dice::Dice;
pub use engine::Engine;
pub use envoy::Envoy;
pub use prometheus::Samples;
pub use proxy::{Proxy, ProxyOptions};
pub use raw::RawClient;
pub use scripted_feed::ScriptedFeed;
pub use stack::{Stack, StackBuilder};
pub use upstream::Upstream;
