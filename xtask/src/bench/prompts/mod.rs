//! The second turn of a long conversation: what the collector needs from the body to the block hashes, beside tokenizing the
//! whole of it; and what chats are held for at the proxy.

mod proxy;

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::{build, run, templates};

#[derive(Args)]
pub(crate) struct Options {
    /// Tokens of the conversation
    #[arg(long, default_value_t = 30_000)]
    tokens: usize,
    /// Turns to measure; the figures are their medians. 0: none, the proxy alone
    #[arg(long, default_value_t = 21)]
    repeats: usize,
    /// Seconds of load at the proxy, for each kind; 0: none
    #[arg(long, default_value_t = 10)]
    seconds: u32,
}

/// Fetches the models where need be, measures, reports.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut all = serde_json::Map::new();
    for (name, model) in templates::models()? {
        let mut figures = serde_json::Map::new();
        if options.repeats > 0 {
            figures.insert("collector".to_owned(), collector(&model, options)?);
        }
        if options.seconds > 0 {
            build::all()?;
            figures.insert("proxy".to_owned(), proxy::run(&model, options.seconds)?);
        }
        all.insert(name.to_owned(), Value::Object(figures));
    }
    println!("{:#}", json!(all));
    Ok(())
}

/// The collector's part, in a program of its own.
fn collector(model: &Path, options: &Options) -> Result<Value> {
    let mut measure = run::cargo(&["run", "--quiet", "--locked", "--release"])?;
    measure.args(["--package", "warmroute-prompts", "--example", "second_turn", "--"]).arg(model);
    measure.args([options.tokens.to_string(), options.repeats.to_string()]);
    serde_json::from_str(&run::output(&mut measure)?).context("no figures")
}
