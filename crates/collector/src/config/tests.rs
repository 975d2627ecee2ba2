use super::*;

const DOCUMENTED: &str = "
listen: 127.0.0.1:9400        # feed, health, metrics
pools:
  - name: llama
    engine: vllm              # vllm, sglang, trtllm or llmd-sim
    block_size: 16            # tokens in a block, as the engines have it
    base_models: [sim]        # model names that mean the base model; any other name is a LoRA adapter
    workers:
      - address: 127.0.0.1:8001          # ip:port, exactly as Envoy knows the endpoint
        events: tcp://127.0.0.1:5557     # the engine's KV event publisher
        replay: tcp://127.0.0.1:5558     # its replay endpoint; optional
        data_parallel_size: 1            # ranks; rank r publishes on both ports + r
";

fn refusal(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

fn publishers(worker: &WorkerConfig) -> &[Publisher] {
    match &worker.source {
        Some(EventSource::Published(publishers)) => publishers,
        other => panic!("{other:?}"),
    }
}

/// A configuration with one line of the documented one replaced.
fn with(old: &str, new: &str) -> String {
    assert!(DOCUMENTED.contains(old), "{old}");
    DOCUMENTED.replacen(old, new, 1)
}

#[test]
fn reads_the_documented_example() {
    let config = Config::parse(DOCUMENTED).unwrap();
    assert_eq!((config.listen.port(), config.ready_timeout), (9400, Duration::from_secs(10)));
    let pool = &config.pools[0];
    assert_eq!(
        (pool.name.as_str(), pool.block_size, pool.expected_blocks, pool.max_orphans),
        ("llama", 16, 65_536, 65_536)
    );
    assert_eq!(pool.replay_timeout, Duration::from_secs(5));
    assert_eq!((pool.engine, pool.health_interval), (Engine::Vllm, Some(Duration::from_secs(2))));
    assert_eq!(pool.gauges_interval, Some(Duration::from_millis(500)));
    assert_eq!(pool.base_models, ["sim"]);
    let worker = &pool.workers[0];
    assert_eq!((worker.address.to_string(), worker.ranks()), ("127.0.0.1:8001".into(), 1));
    let publisher = &publishers(worker)[0];
    assert_eq!(publisher.events.to_string(), "tcp://127.0.0.1:5557");
    assert_eq!(publisher.replay.as_ref().unwrap().to_string(), "tcp://127.0.0.1:5558");
}

#[test]
fn what_may_be_left_out_has_its_default() {
    let text = "
pools:
  - name: a
    block_size: 1
    workers: [{address: '[::1]:80', events: 'tcp://host:1'}]
";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:9400");
    let publishers = publishers(&config.pools[0].workers[0]);
    assert_eq!((publishers.len(), &publishers[0].replay), (1, &None));
}

#[test]
fn snapshots_are_kept_where_a_directory_is_named() {
    assert_eq!(Config::parse(DOCUMENTED).unwrap().snapshots, None);
    let text = |snapshots: &str| with("pools:", &format!("snapshots: {snapshots}\npools:"));
    let of = |snapshots: &str| Config::parse(&text(snapshots)).unwrap().snapshots.unwrap();
    let kept = of("{directory: /var/lib/w}");
    assert_eq!((kept.directory.to_str(), kept.interval), (Some("/var/lib/w"), Duration::from_secs(30)));
    assert_eq!(of("{directory: d, interval_ms: 500}").interval, Duration::from_millis(500));
    assert!(refusal(&text("{directory: ''}")).starts_with("snapshots.directory: write a directory's path"));
    assert!(
        refusal(&text("{directory: d, interval_ms: 9}"))
            .starts_with("snapshots.interval_ms: 9: write a number")
    );
    assert!(refusal(&text("{interval_ms: 900}")).contains("directory"));
}

#[test]
fn an_unknown_field_or_a_wrong_type_is_named_by_its_path() {
    let message = refusal(&with("block_size: 16", "block_sise: 16"));
    assert!(message.contains("pools[0]") && message.contains("block_sise"), "{message}");
    let message = refusal(&with("block_size: 16", "block_size: many"));
    assert!(message.starts_with("pools[0].block_size: write a whole number"), "{message}");
    let message = refusal(&with("    block_size: 16", "    "));
    assert!(message.contains("block_size") && message.contains("pools[0]"), "{message}");
    let message = refusal(&with("data_parallel_size: 1", "data_parallel_size: -1"));
    assert!(message.contains("pools[0].workers[0].data_parallel_size"), "{message}");
    assert!(!refusal("pools: [").is_empty());
    assert!(refusal("").contains("pools") || !refusal("").is_empty());
}

#[test]
fn a_value_that_cannot_be_is_named_and_told_what_to_write() {
    for (old, new, field, advice) in [
        ("127.0.0.1:9400", "9400", "listen", "ip:port"),
        ("name: llama", "name: Llama", "pools[0].name", "a-z"),
        ("block_size: 16", "block_size: 0", "pools[0].block_size", "1 to 65536"),
        ("block_size: 16", "block_size: 65537", "pools[0].block_size", "1 to 65536"),
        ("engine: vllm", "engine: vLLM", "pools[0].engine", "`vllm`"),
        ("tcp://127.0.0.1:5557", "bind tcp://*:5557", "pools[0].workers[0].events", "tcp://host:port"),
        (
            "block_size: 16",
            "block_size: 16\n    health_interval_ms: 9999999",
            "pools[0].health_interval_ms",
            "3600000",
        ),
        (
            "block_size: 16",
            "block_size: 16\n    gauges_interval_ms: 1001",
            "pools[0].gauges_interval_ms",
            "0 to 1000",
        ),
        ("base_models: [sim]", "base_models: ['']", "pools[0].base_models[0]", "name"),
        ("127.0.0.1:8001", "localhost:8001", "pools[0].workers[0].address", "ip:port"),
        ("127.0.0.1:8001", "0.0.0.0:8001", "pools[0].workers[0].address", "Envoy"),
        ("tcp://127.0.0.1:5557", "tcp://*:5557", "pools[0].workers[0].events", "tcp://host:port"),
        ("tcp://127.0.0.1:5558", "127.0.0.1:5558", "pools[0].workers[0].replay", "tcp://host:port"),
        (
            "data_parallel_size: 1",
            "data_parallel_size: 65",
            "pools[0].workers[0].data_parallel_size",
            "1 to 64",
        ),
        ("data_parallel_size: 1", "data_parallel_size: 2", "pools[0].workers[0].replay", "too close"),
        ("listen:", "ready_timeout_ms: 99999999\nlisten:", "ready_timeout_ms", "3600000"),
    ] {
        let message = refusal(&with(old, new));
        assert!(message.starts_with(&format!("{field}: ")) && message.contains(advice), "{message}");
    }
    assert!(refusal("pools: []").starts_with("pools: "));
}

#[test]
fn no_two_workers_have_one_endpoint() {
    let pool = |workers: &str| format!("pools: [{{name: p, block_size: 16, workers: [{workers}]}}]");
    let worker = |port: u16, events: u16, ranks: u16| {
        format!("{{address: '1.1.1.1:{port}', events: 'tcp://a:{events}', data_parallel_size: {ranks}}}")
    };
    let message = refusal(&pool(&[worker(1, 5557, 1), worker(2, 5557, 1)].join(",")));
    assert!(
        message.contains("pools[0].workers[1].events") && message.contains("pools[0].workers[0]"),
        "{message}"
    );
    let message = refusal(&pool(&[worker(1, 5557, 4), worker(2, 5560, 1)].join(",")));
    assert!(message.contains("pools[0].workers[1].events"), "{message}");
    Config::parse(&pool(&[worker(1, 5557, 4), worker(2, 5561, 1)].join(","))).unwrap();
}

#[test]
fn engines_dial_a_port_that_belongs_to_one_pool() {
    let worker = |port: u16| format!("{{address: '1.1.1.1:{port}', events: 'bind tcp://0.0.0.0:5557'}}");
    let pool = |name: &str, workers: &str| {
        format!("  - {{name: {name}, engine: llmd-sim, block_size: 1, workers: [{workers}]}}\n")
    };
    let one = format!("pools:\n{}", pool("a", &format!("{}, {}", worker(1), worker(2))));
    let config = Config::parse(&one).unwrap();
    assert_eq!(config.pools[0].engine, Engine::LlmdSim);
    assert_eq!(publishers(&config.pools[0].workers[1])[0].events.to_string(), "bind tcp://0.0.0.0:5557");
    let two = format!("{one}{}", pool("b", &worker(1)));
    assert!(refusal(&two).starts_with("pools[1].workers[0].events: "), "{}", refusal(&two));
}

#[test]
fn names_and_addresses_do_not_repeat() {
    let worker = "{address: '1.1.1.1:1', events: 'tcp://a:1'}";
    let pool =
        |name: &str, workers: &str| format!("  - {{name: {name}, block_size: 1, workers: [{workers}]}}\n");
    let twice = format!("pools:\n{}{}", pool("a", worker), pool("a", worker));
    assert!(refusal(&twice).starts_with("pools[1].name: "));
    let twice = format!("pools:\n{}", pool("a", &format!("{worker}, {worker}")));
    assert!(refusal(&twice).starts_with("pools[0].workers[1].address: "));
}

#[test]
fn only_trtllm_is_polled_and_each_url_once() {
    let pool = |name: &str, engine: &str, workers: &str| {
        format!("  - {{name: {name}, engine: {engine}, block_size: 32, workers: [{workers}]}}\n")
    };
    let worker = |port: u16, more: &str| {
        format!("{{address: '1.1.1.1:{port}', events: 'http://1.1.1.1:8000/kv_cache_events'{more}}}")
    };
    let one = format!("pools:\n{}", pool("a", "trtllm", &worker(1, ", data_parallel_size: 4")));
    let config = Config::parse(&one).unwrap();
    let url = "http://1.1.1.1:8000/kv_cache_events".parse().unwrap();
    assert_eq!(config.pools[0].workers[0].source, Some(EventSource::Polled { url, ranks: 4 }));
    for (text, field, advice) in [
        (
            format!("pools:\n{}", pool("a", "vllm", &worker(1, ""))),
            "workers[0].events",
            "only `engine: trtllm`",
        ),
        (
            format!("pools:\n{}", pool("a", "trtllm", &worker(1, ", replay: 'tcp://a:1'"))),
            "workers[0].replay",
            "leave",
        ),
        (one.replace("http:", "https:"), "workers[0].events", "http://host:port"),
        (
            format!("pools:\n{}", pool("a", "trtllm", &[worker(1, ""), worker(2, "")].join(","))),
            "workers[1].events",
            "own",
        ),
        (format!("{one}{}", pool("b", "trtllm", &worker(1, ""))), "pools[1].workers[0].events", "polled"),
    ] {
        let message = refusal(&text);
        assert!(message.contains(field) && message.contains(advice), "{message}");
    }
}

#[test]
fn workers_may_be_listed_elsewhere() {
    let discover = |engine: &str, discover: &str| {
        let text =
            format!("pools: [{{name: p, engine: {engine}, block_size: 16, discover: {{{discover}}}}}]");
        Config::parse(&text).map(|config| config.pools[0].discover.clone().unwrap())
    };
    let file = discover("llmd-sim", "file: a/b.yaml, interval_ms: 200").unwrap();
    assert_eq!(
        (file.from, file.interval),
        (DiscoverFrom::File("a/b.yaml".into()), Duration::from_millis(200))
    );
    let dns = discover("vllm", "dns: 'vllm.default.svc:8000'").unwrap();
    let host = "vllm.default.svc".to_owned();
    assert_eq!(dns.from, DiscoverFrom::Dns { host, port: 8000, source: None });
    let dns =
        discover("vllm", "dns: 'a:1', events: 'tcp://*:5557', replay: 'tcp://*:5657', data_parallel_size: 2");
    let DiscoverFrom::Dns { source, .. } = dns.unwrap().from else { panic!() };
    let address = "[fd00::1]:8000".parse().unwrap();
    let worker = Discover::worker(source.as_ref(), Engine::Vllm, address).unwrap();
    let shown: Vec<_> = publishers(&worker).iter().map(|publisher| publisher.events.to_string()).collect();
    assert_eq!(shown, ["tcp://[fd00::1]:5557", "tcp://[fd00::1]:5558"]);
    discover("trtllm", "dns: 'a:1', events: 'http://*:8000/kv_cache_events'").unwrap();
    discover("llmd-sim", "dns: 'a:1', events: 'bind tcp://0.0.0.0:5557'").unwrap();
    for (engine, text, field, advice) in [
        ("vllm", "interval_ms: 500", "pools[0].discover: ", "either"),
        ("vllm", "dns: 'a:1', file: b", "pools[0].discover: ", "either"),
        ("vllm", "dns: a", "pools[0].discover.dns: ", "name:port"),
        ("vllm", "dns: 'a:0'", "pools[0].discover.dns: ", "name:port"),
        ("vllm", "file: ''", "pools[0].discover.file: ", "path"),
        ("vllm", "file: a, events: 'tcp://*:1'", "pools[0].discover.events: ", "entries"),
        ("vllm", "dns: 'a:1', interval_ms: 1", "pools[0].discover.interval_ms: ", "100 to 3600000"),
        ("vllm", "dns: 'a:1', events: 'tcp://b:1'", "pools[0].discover.events: ", "`*`"),
        ("vllm", "dns: 'a:1', events: 'tcp://*:x'", "pools[0].discover.events: ", "tcp://host:port"),
        ("vllm", "dns: 'a:1', replay: 'tcp://*:1'", "pools[0].discover.events: ", "asked"),
        ("trtllm", "dns: 'a:1'", "pools[0].discover.events: ", "`trtllm` cannot be asked"),
    ] {
        let message = discover(engine, text).unwrap_err().to_string();
        assert!(message.starts_with(field) && message.contains(advice), "{text}: {message}");
    }
    let nobody = refusal("pools: [{name: p, block_size: 16}]");
    assert!(nobody.starts_with("pools[0].workers: ") && nobody.contains("discover"), "{nobody}");
}

#[test]
fn only_an_engine_that_tells_may_have_no_events() {
    let pool = |engine: &str, worker: &str| {
        format!(
            "pools: [{{name: p, engine: {engine}, block_size: 16, workers: [{{address: '1.1.1.1:1'{worker}}}]}}]"
        )
    };
    for engine in ["vllm", "sglang"] {
        let config = Config::parse(&pool(engine, "")).unwrap();
        assert_eq!((&config.pools[0].workers[0].source, config.pools[0].workers[0].ranks()), (&None, 1));
    }
    for (text, advice) in [
        (pool("trtllm", ""), "cannot be asked"),
        (pool("vllm", ", data_parallel_size: 2"), "asked then"),
        (pool("vllm", ", replay: 'tcp://a:1'"), "asked then"),
    ] {
        let message = refusal(&text);
        assert!(message.starts_with("pools[0].workers[0].events: ") && message.contains(advice), "{message}");
    }
    let message =
        Discover::workers("[{address: '1.1.1.1:1'}, {address: '1.1.1.1:1'}]", Engine::Vllm).unwrap_err();
    assert!(message.to_string().starts_with("workers[1].address: "), "{message}");
}
