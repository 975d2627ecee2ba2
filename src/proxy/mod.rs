//! The plugin in Envoy: the only part that speaks the proxy-wasm ABI.

#![allow(unsafe_code, reason = "`abi` alone holds the calls into the host; nothing else here is unsafe")]

mod abi;
#[cfg(feature = "fault-injection")]
mod fault;
mod filter;
mod host;
#[cfg(feature = "phase-times")]
mod phase_times;
mod publisher;
mod root;

use proxy_wasm::types::LogLevel;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|id| Box::new(root::Root::new(id)));
}}
