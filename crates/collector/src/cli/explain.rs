//! `explain`: what a prompt would find.

use std::io::Read;
use std::process::ExitCode;

use anyhow::Context;
use warmroute_collector::inspect::{Explanation, Question};

use super::http::Collector;
use super::table::Table;

/// Shows how much of a prompt each worker of a running collector has cached, and what the rest would cost.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    collector: Collector,
    /// The pool.
    #[arg(long)]
    pool: String,
    /// The prompt's token IDs, separated by commas or blanks; `-` reads them from stdin.
    #[arg(long, allow_hyphen_values = true)]
    tokens: String,
    /// The LoRA adapter's name.
    #[arg(long)]
    lora: Option<String>,
    /// The cache salt.
    #[arg(long)]
    salt: Option<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let tokens = tokens(&arguments.tokens)?;
    let question = Question { tokens, lora: arguments.lora.clone(), salt: arguments.salt.clone() };
    let path = format!("/v1/pools/{}/explain", arguments.pool);
    let explanation: Explanation = arguments.collector.post(&path, &question)?;
    if arguments.json {
        println!("{}", serde_json::to_string(&explanation)?);
    } else {
        print!("{}", render(&explanation));
    }
    Ok(ExitCode::SUCCESS)
}

fn tokens(text: &str) -> anyhow::Result<Vec<u32>> {
    let mut read = String::new();
    let text = if text == "-" {
        std::io::stdin().read_to_string(&mut read)?;
        read.trim_matches(['[', ']', '\n', ' '])
    } else {
        text
    };
    let numbers = text.split([',', ' ', '\n', '\t', '\r']).filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().with_context(|| format!("`{number}` is no token ID"))).collect()
}

fn render(explanation: &Explanation) -> String {
    let Explanation { pool, block_size, tokens, blocks, workers } = explanation;
    let mut table =
        Table::new(["WORKER", "RANK", "STATE", "GPU", "+CPU", "+DISK", "+EXTERNAL", "UNCACHED TOKENS"]);
    for worker in workers {
        let cached = worker.cached_blocks;
        table.row([
            worker.worker.clone(),
            worker.rank.to_string(),
            worker.state.clone(),
            cached.gpu.to_string(),
            cached.cpu.to_string(),
            cached.disk.to_string(),
            cached.external.to_string(),
            worker.uncached_tokens.to_string(),
        ]);
    }
    format!("pool {pool}: {tokens} tokens, {blocks} full blocks of {block_size}\n{}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_ids_are_separated_by_commas_or_blanks() {
        assert_eq!(tokens("1,2 3,\t4").unwrap(), [1, 2, 3, 4]);
        assert!(tokens("1,x").unwrap_err().to_string().contains("`x`"));
    }
}
