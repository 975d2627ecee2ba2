//! The component from start to end: an engine tells what it stored, and a prompt goes where it is cached.

use warmroute_host::{Warmroute, prefix_index, router, types};
use wasmtime::{Result, bail, format_err};

fn main() -> Result<()> {
    let path = match std::env::args_os().nth(1) {
        Some(path) => path.into(),
        None => Warmroute::built_component()?,
    };
    let mut host = Warmroute::open(&path)?;
    let Warmroute { store, world } = &mut host;
    let (index_calls, router_calls) =
        (world.warmroute_routing_prefix_index(), world.warmroute_routing_router());
    let (indexes, routers) = (index_calls.index(), router_calls.router());

    let options = prefix_index::Options { block_size: 16, max_orphans: 10_000 };
    let index = indexes.call_open(&mut *store, options)?.map_err(|refused| format_err!("{refused}"))?;
    let workers = [types::Worker { id: 1, rank: 0 }, types::Worker { id: 2, rank: 0 }];
    for worker in workers {
        indexes.call_add_worker(&mut *store, index, worker)?;
    }

    // Worker 2 says that it has stored three blocks of a prompt.
    let prompt: Vec<u32> = (0..48).collect();
    let stored = prefix_index::Stored {
        hashes: vec![101, 102, 103],
        parent: None,
        content: prefix_index::Content::Tokens((types::Tokens::Ids(prompt.clone()), 16)),
        lora: None,
        salt: None,
        tier: types::Tier::Gpu,
        group: 0,
    };
    let events = [prefix_index::Event::Stored(stored)];
    let outcome = indexes.call_apply(&mut *store, index, workers[1], &events, 1_000)?;
    println!("stored {} blocks", outcome.applied.stored);

    let settings = router::Settings {
        policy: router::Policy::Standard,
        max_age_ms: Some(30_000),
        booking_life_ms: 600_000,
    };
    let desk =
        routers.call_open(&mut *store, index, settings)?.map_err(|refused| format_err!("{refused}"))?;
    let next_turn = [prompt, vec![7; 20]].concat();
    let plain = types::Namespace { lora: None, salt: None };
    let selection = routers.call_select_worker(
        &mut *store,
        desk,
        "request-1",
        &types::Prompt::Tokens((types::Tokens::Ids(next_turn), plain)),
        &router::Candidates::All,
        router::Options { ranked: 2, book: true, now_ms: 1_020 },
    )?;
    let selection = match selection {
        Ok(selection) => selection,
        Err(refusal) => bail!("refused: {refusal:?}; a host uses its own default now"),
    };
    println!(
        "request-1 goes to worker {}, which holds {} of {} blocks",
        selection.worker.id, selection.depths.gpu, selection.prompt_blocks
    );

    routers.call_prefill_complete(&mut *store, desk, "request-1")?;
    routers.call_free(&mut *store, desk, "request-1")?;
    Ok(())
}
