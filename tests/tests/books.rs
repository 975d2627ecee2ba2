//! The books of what is in flight: a request is booked once and released once, however it ends.
//!
//! Requests end in every way that there is: whole, cancelled before their body is there, before the answer begins, in
//! prefill, in mid-stream; refused and retried; under configurations that change, and in VMs that crash. How many there
//! are is 1,500 for each scenario, or what `WARMROUTE_BOOKS_REQUESTS` says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use warmroute_e2e::client::completion;
use warmroute_e2e::dice::Dice;
use warmroute_e2e::{Client, RawClient, Stack, tokens, wait, workspace};

const DEADLINE: Duration = Duration::from_secs(60);

/// Requests under way at once.
const AT_ONCE: usize = 40;

/// Requests between two looks at books that must be empty.
const ROUND: u64 = 250;

/// The gauges are so much later than the books of each thread at most, on a busy machine.
const LATE: Duration = Duration::from_millis(500);

/// How a request is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Whole,
    Streamed,
    CancelledInItsBody,
    CancelledBeforeHeaders,
    CancelledInPrefill,
    CancelledInMidStream,
    Crash,
}

/// How the requests have ended, as their clients know it.
#[derive(Debug, Default)]
struct Ends(Mutex<BTreeMap<String, u64>>);

// === impl Ends ===

impl Ends {
    fn count(&self, end: End, how: &str) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *ends.entry(format!("{end:?}: {how}")).or_default() += 1;
    }
}

fn requests() -> u64 {
    let said = std::env::var("WARMROUTE_BOOKS_REQUESTS").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(1_500)
}

fn streamed(prompt: &[u32], max_tokens: u32) -> Value {
    json!({ "model": "sim", "prompt": prompt, "max_tokens": max_tokens, "stream": true })
}

/// Engines that refuse some of what comes at once, so that it is retried, and whose prefill takes a while.
async fn stack(name: &str, plugin: std::path::PathBuf) -> Result<Stack> {
    let flags =
        ["--max-running", "6", "--max-waiting", "3", "--num-blocks", "8192", "--prefill-us-per-token", "20"];
    let stack = Stack::builder(name).engine_flags(flags).reloadable();
    let stack = stack.edit_bootstrap(move |bootstrap| bootstrap.set_plugin(&plugin)).start().await?;
    stack.wait_until_steering().await?;
    Ok(stack)
}

/// Sends one request and ends it as it is to end. How it ended.
async fn send(client: &Client, url: &str, end: End, dice: &mut Dice) -> Result<String> {
    // Some prompts are known, some are new.
    let seed = if dice.within(0..4) == 0 { dice.roll() } else { dice.within(0..32) };
    let prompt = tokens(seed, 512);
    let body = match end {
        End::Whole => completion(&prompt, 2),
        End::CancelledInPrefill => streamed(&tokens(dice.roll(), 8192), 2),
        End::CancelledInMidStream => streamed(&prompt, 2_000),
        _ => streamed(&prompt, 4),
    };
    if end == End::CancelledInItsBody {
        let body = body.to_string();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let cut = dice.within(0..body.len() as u64) as usize;
        let mut raw = RawClient::connect(url).await?;
        raw.send(head.as_bytes()).await?;
        raw.send(body.as_bytes().get(..cut).unwrap_or_default()).await?;
        tokio::time::sleep(Duration::from_millis(dice.within(0..20))).await;
        return Ok("closed".to_owned());
    }
    let mut request = client.post("/v1/completions").json(&body);
    if end == End::Crash {
        request = request.header("x-warmroute-fault", "panic");
    }
    let patience = match end {
        End::CancelledBeforeHeaders => Duration::from_micros(dice.within(0..6_000)),
        End::CancelledInPrefill => Duration::from_millis(dice.within(10..120)),
        _ => Duration::from_secs(60),
    };
    let Ok(answer) = tokio::time::timeout(patience, request.send()).await else {
        return Ok("given up".to_owned());
    };
    let Ok(mut response) = answer else { return Ok("no answer".to_owned()) };
    let status = response.status();
    if !status.is_success() || end == End::CancelledInMidStream {
        let _ = response.chunk().await;
        return Ok(if status.is_success() { "given up".to_owned() } else { status.to_string() });
    }
    while response.chunk().await.is_ok_and(|chunk| chunk.is_some()) {}
    Ok("ended".to_owned())
}

/// Sends a round of requests, `AT_ONCE` at a time, and has the configuration changed in its middle.
async fn round(
    stack: &mut Stack,
    ends: &Arc<Ends>,
    number: u64,
    count: u64,
    kinds: &'static [End],
) -> Result<()> {
    let (url, client) = (stack.url(), Client::http1(stack.url())?);
    let mut under_way = JoinSet::new();
    for request in 0..count {
        if under_way.len() >= AT_ONCE {
            under_way.join_next().await.context("nothing is under way")???;
        }
        let (client, url, ends) = (client.clone(), url.clone(), Arc::clone(ends));
        let mut dice = Dice::new(number << 32 | request);
        let end = match dice.within(0..200) {
            // A VM that crashes again within its back-off stays away until that is over.
            0 if kinds.contains(&End::Crash) => End::Crash,
            _ => *dice.pick(ENDS).context("no end")?,
        };
        under_way.spawn(async move {
            let how = send(&client, &url, end, &mut dice).await;
            ends.count(end, how.as_deref().unwrap_or("failed"));
            how.map(drop)
        });
        if request == count / 2 {
            let edit = json!({ "max_page_reads": 64 + number });
            stack.reload(|bootstrap| bootstrap.patch_filter(&edit)).await?;
        }
    }
    while let Some(ended) = under_way.join_next().await {
        ended??;
    }
    Ok(())
}

/// The gauges of what Envoy has in flight, by name.
async fn gauges(stack: &Stack) -> Result<BTreeMap<String, u64>> {
    stack.envoy.stats("warmroute_load_.*source=own").await
}

async fn wait_until_empty(stack: &Stack) -> Result<()> {
    wait::until_ok(DEADLINE, "empty books", async || {
        let busy: BTreeMap<_, _> = gauges(stack).await?.into_iter().filter(|(_, value)| *value > 0).collect();
        ensure!(busy.is_empty(), "{busy:?}");
        Ok(())
    })
    .await
}

/// What was seen of the books.
#[derive(Debug, Default)]
struct Watched {
    looks: u64,
    most_booked: u64,
    /// The first time that they had more than there was: so many requests, of so many.
    excess: Option<(u64, u64)>,
}

/// Compares the books with what Envoy itself has under way, until it is told to stop.
///
/// Each thread's part of the books is of another moment, none older than `LATE`. So the books may have each request that was
/// there at some time since: those that have begun by now, without those that had ended then. Both only ever grow.
async fn watch(url: String, stop: Arc<AtomicBool>) -> Result<Watched> {
    const FILTER: &str = "(warmroute_load_requests.*source=own|http.warmroute.downstream_rq_(total|active))";
    let url = reqwest::Url::parse_with_params(&format!("{url}/stats"), &[("filter", FILTER)])?;
    let mut ended = VecDeque::from([(Instant::now(), 0)]);
    let mut watched = Watched::default();
    while !stop.load(Ordering::SeqCst) {
        let begun_at = Instant::now();
        let page = reqwest::get(url.clone()).await?.text().await?;
        let (mut booked, mut begun, mut active) = (0, 0, 0);
        for (name, value) in page.lines().filter_map(|line| line.rsplit_once(": ")) {
            let value: u64 = value.parse()?;
            match name {
                "http.warmroute.downstream_rq_total" => begun = value,
                "http.warmroute.downstream_rq_active" => active = value,
                _ => booked += value,
            }
        }
        while ended.get(1).is_some_and(|(at, _)| begun_at.duration_since(*at) > LATE) {
            ended.pop_front();
        }
        let there = begun - ended.front().map_or(0, |(_, count)| *count);
        if booked > there && watched.excess.is_none() {
            watched.excess = Some((booked, there));
        }
        ended.push_back((begun_at, begun.saturating_sub(active)));
        watched.looks += 1;
        watched.most_booked = watched.most_booked.max(booked);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(watched)
}

fn report(ends: &Ends, gauges: &BTreeMap<String, u64>) {
    let ends = ends.0.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{} requests", ends.values().sum::<u64>());
    ends.iter().for_each(|(how, count)| println!("{count:>7} {how}"));
    println!("the books afterwards:");
    gauges.iter().for_each(|(name, value)| println!("{value:>7} {name}"));
}

const ENDS: &[End] = &[
    End::Whole,
    End::Streamed,
    End::CancelledInItsBody,
    End::CancelledBeforeHeaders,
    End::CancelledInPrefill,
    End::CancelledInMidStream,
];

#[tokio::test]
async fn the_books_never_exceed_the_truth_and_are_empty_after_every_end() -> Result<()> {
    let mut stack = stack("books", workspace::plugin()?).await?;
    let (ends, stop) = (Arc::new(Ends::default()), Arc::new(AtomicBool::new(false)));
    let watching = tokio::spawn(watch(stack.envoy.admin_url(), Arc::clone(&stop)));
    for number in 0..requests().div_ceil(ROUND) {
        round(&mut stack, &ends, number, ROUND, ENDS).await?;
        wait_until_empty(&stack).await?;
    }
    // So many are held in mid-stream: the books have exactly those, at the workers that serve them. Nobody has their prompts,
    // so that no engine is sent more of them than it runs at once.
    let client = Client::http1(stack.url())?;
    let mut held: Vec<reqwest::Response> = Vec::new();
    let mut serving = BTreeMap::<String, u64>::new();
    for number in 0..100 {
        if held.len() == 8 {
            break;
        }
        let request = client.post("/v1/completions").json(&streamed(&tokens(1 << 40 | number, 512), 20_000));
        let mut response = request.send().await?;
        // An engine that is asked too much at once refuses, and so may the next.
        if response.status().is_success() {
            response.chunk().await?;
            let engine = response.headers().get("x-simengine").context("no engine")?.to_str()?.to_owned();
            *serving.entry(engine).or_default() += 1;
            held.push(response);
        }
    }
    wait::until_ok(DEADLINE, "the books to have what is held", async || {
        for (name, value) in gauges(&stack).await? {
            let worker = name.split_once(";worker=").context("no worker")?.1;
            let expected = serving.get(worker).copied().unwrap_or_default();
            if name.contains("load_requests") {
                ensure!(value == expected, "{name}: {value}, not {expected}");
            }
            ensure!(value == 0 || !name.contains("prefill_tokens"), "{name}: {value} after the first byte");
        }
        Ok(())
    })
    .await?;
    drop(held);
    wait_until_empty(&stack).await?;
    stop.store(true, Ordering::SeqCst);
    let Watched { looks, most_booked, excess } = watching.await??;
    report(&ends, &gauges(&stack).await?);
    println!("{looks} looks at the books; at most {most_booked} requests in them");
    ensure!(excess.is_none(), "in the books, and in Envoy: {excess:?}");
    ensure!(looks > 20 && most_booked > 4, "{looks} looks, {most_booked} booked");
    let retried = stack.envoy.stats("cluster.workers.upstream_rq_retry$").await?;
    println!("{retried:?}");
    ensure!(retried.values().sum::<u64>() > 0, "nothing was retried");
    stack.stop().await
}

#[tokio::test]
async fn the_books_are_empty_after_vms_have_crashed() -> Result<()> {
    const WITH_CRASHES: &[End] = &[ENDS[0], ENDS[1], ENDS[2], ENDS[3], ENDS[4], ENDS[5], End::Crash];
    let mut stack = stack("books-crash", workspace::faulty_plugin()?).await?;
    let ends = Arc::new(Ends::default());
    for number in 0..requests().div_ceil(ROUND) {
        round(&mut stack, &ends, number, ROUND, WITH_CRASHES).await?;
    }
    wait_until_empty(&stack).await?;
    report(&ends, &gauges(&stack).await?);
    let crashes = stack.envoy.log().matches("panicked at").count();
    println!("{crashes} VMs have crashed");
    ensure!(crashes > 0, "no VM has crashed");
    ensure!(!gauges(&stack).await?.is_empty(), "there are no gauges");
    stack.discard()
}
