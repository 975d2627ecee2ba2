//! `replay FILE`: answers on stdout, the summary on stderr.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use warmroute_collector::replay::{Options, replay};
use warmroute_wire::Engine;

/// Feeds recorded frames through decoding and index.
///
/// Lines of kind `query` are answered on stdout with a JSON line each; the counts follow on stderr as one JSON line.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The recording, a file of JSON lines; `-` reads stdin.
    file: PathBuf,
    /// Tokens in a block [default: learnt from each worker's first store].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65536))]
    block_size: Option<u32>,
    /// What the recorded workers ran: vllm, sglang, trtllm or llmd-sim.
    #[arg(long, default_value_t)]
    engine: Engine,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let name = arguments.file.display();
    let input = open(&arguments.file).with_context(|| format!("cannot read {name}"))?;
    let options = Options { block_size: arguments.block_size, engine: arguments.engine };
    let summary =
        replay(input, BufWriter::new(stdout().lock()), options).with_context(|| format!("{name}"))?;
    eprintln!("{}", serde_json::to_string(&summary)?);
    Ok(ExitCode::SUCCESS)
}

fn open(file: &Path) -> std::io::Result<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(stdin().lock()));
    }
    Ok(Box::new(BufReader::new(File::open(file)?)))
}
