//! NVIDIA Dynamo's mocker: a scheduler and block manager of their own, vLLM's events, no weights.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Installed, MODEL, Traits, port};
use crate::engine::Endpoints;
use crate::venv::Venv;

pub(super) const TRAITS: Traits =
    Traits { name: "dynamo.mocker 1.6.1", block_size: 16, num_blocks: 40, namespaces: false };

/// Dynamo without its dependencies, of which one cannot be built, and those that the mocker needs.
const DYNAMO: [&str; 2] = ["ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1"];
const NEEDED: [&str; 11] = [
    "fastapi==0.165.0",
    "huggingface_hub==2.4.0",
    "msgpack==1.2.4",
    "msgspec==0.23.0",
    "numpy==2.4.6",
    "prometheus_client==0.26.0",
    "pydantic==2.14.4",
    "pyyaml==6.0.4",
    "pyzmq==27.3.0",
    "transformers==5.24.0",
    "uvloop==0.23.0",
];

pub(super) fn venv() -> Result<Venv> {
    Venv::get("engines/dynamo-mocker-1.6.1", |venv| {
        venv.install(["--no-deps"].into_iter().chain(DYNAMO))?;
        venv.install(NEEDED)
    })
}

/// The mocker, and the frontend that speaks HTTP for it. They find each other in the directory `discovery`, which is
/// theirs alone: so each worker is one mocker.
pub(super) fn commands(
    installed: &Installed,
    endpoints: &Endpoints,
    discovery: &Path,
) -> Result<Vec<Command>> {
    let module = |name: &str| {
        let mut command = Command::new(installed.venv.python());
        command.args(["-m", name]);
        command.args(["--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"]);
        command.env("DYN_FILE_KV", discovery).env("DYN_TCP_RPC_HOST", "127.0.0.1");
        command
    };
    let mut mocker = module("dynamo.mocker");
    mocker.arg("--model-path").arg(&installed.model).args(["--model-name", MODEL]);
    mocker.args(["--block-size", &TRAITS.block_size.to_string()]);
    mocker.args(["--num-gpu-blocks-override", &TRAITS.num_blocks.to_string()]);
    mocker.args(["--max-model-len", "512", "--speedup-ratio", "0"]);
    mocker.args(["--zmq-kv-events-ports", port(&endpoints.events)?]);
    mocker.args(["--zmq-replay-ports", port(&endpoints.replay)?]);
    let mut frontend = module("dynamo.frontend");
    frontend.args(["--http-host", &endpoints.address.ip().to_string()]);
    frontend.args(["--http-port", &endpoints.address.port().to_string(), "--router-mode", "round-robin"]);
    Ok(vec![mocker, frontend])
}
