//! The second turn of a long conversation: what the collector needs from the body to the block hashes, beside tokenizing the
//! whole of it.

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::{run, templates};

#[derive(Args)]
pub(crate) struct Options {
    /// Tokens of the conversation
    #[arg(long, default_value_t = 30_000)]
    tokens: usize,
    /// Turns to measure; the figures are their medians
    #[arg(long, default_value_t = 21)]
    repeats: usize,
}

/// Fetches the models where need be, measures, reports.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut all = serde_json::Map::new();
    let build =
        ["build", "--locked", "--release", "--package", "warmroute-prompts", "--example", "second_turn"];
    run::to_end(&mut run::cargo(&build)?)?;
    for (name, folder) in templates::models()? {
        let mut measure = run::cargo(&["run", "--quiet", "--locked", "--release"])?;
        measure.args(["--package", "warmroute-prompts", "--example", "second_turn", "--"]).arg(folder);
        measure.args([options.tokens.to_string(), options.repeats.to_string()]);
        let figures: Value = serde_json::from_str(&run::output(&mut measure)?).context("no figures")?;
        all.insert(name.to_owned(), figures);
    }
    println!("{:#}", json!(all));
    Ok(())
}
