//! `tokenize`: what a model's files make of a request, and whether an engine makes the same of it.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use bytes::Bytes;
use warmroute_collector::config::{Config, PromptsConfig};
use warmroute_collector::prompts::{Comparison, Engine, compare, now, probes};
use warmroute_prompts::{Model, Request};

/// Shows a request's token IDs, or checks whether a pool's files have the tokens of its engine.
///
/// Reads the configuration and the model's files; no collector has to run.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The collector's configuration.
    #[arg(long)]
    config: PathBuf,
    /// The pool; all that have `prompts` if it is not given.
    #[arg(long)]
    pool: Option<String>,
    /// Holds the files against the engine: fixed requests, or the one given. Ends with 1 where tokens differ.
    #[arg(long)]
    check: bool,
    /// A request's body; `-` reads it from stdin.
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// The request's path.
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
}

/// Where tokens differ.
const DIFFERENT: u8 = 1;

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let config = Config::load(&arguments.config)
        .with_context(|| format!("configuration {}", arguments.config.display()))?;
    let wanted = |name: &str| arguments.pool.as_deref().is_none_or(|pool| pool == name);
    let pools: Vec<_> = config
        .pools
        .iter()
        .filter(|pool| wanted(&pool.name))
        .filter_map(|pool| Some((pool, pool.prompts.as_ref()?)))
        .collect();
    if pools.is_empty() {
        bail!("no pool of that name has `prompts`");
    }
    let body = arguments.body.as_ref().map(read).transpose()?;
    let mut code = ExitCode::SUCCESS;
    for (pool, prompts) in pools {
        let model = load(&pool.name, prompts)?;
        if !arguments.check {
            let body = body.as_ref().context("give the request with --body, or --check")?;
            let request = Request::parse(&arguments.path, body)?;
            println!("{}", serde_json::to_string(&model.prompt(&request, now())?.tokens)?);
            continue;
        }
        let engine = prompts.engine.as_deref().map(Engine::new);
        let engine = engine.with_context(|| format!("pool {} names no `engine` to ask", pool.name))?;
        let requests = match &body {
            Some(body) => vec![(arguments.path.as_str(), body.clone())],
            None => probes(pool.base_models.first().map(String::as_str)),
        };
        let model = std::sync::Arc::new(model);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        for (path, body) in requests {
            let comparison = runtime.block_on(compare(&model, &engine, path, &body));
            let result = match &comparison {
                Comparison::Equal => "equal".to_owned(),
                Comparison::Different(how) => format!("different {how}"),
                Comparison::Unknown(error) => format!("unknown: {error}"),
            };
            println!("{}\t{path}\t{result}", pool.name);
            if comparison != Comparison::Equal {
                println!("\t{}", String::from_utf8_lossy(&body));
                code = ExitCode::from(DIFFERENT);
            }
        }
    }
    Ok(code)
}

fn load(pool: &str, prompts: &PromptsConfig) -> anyhow::Result<Model> {
    let folder = prompts.model.as_ref().with_context(|| format!("pool {pool} names no `model`"))?;
    Ok(Model::load(folder, prompts.options.clone())?)
}

fn read(path: &PathBuf) -> anyhow::Result<Bytes> {
    let mut body = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut body)?;
    } else {
        body = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(Bytes::from(body))
}
