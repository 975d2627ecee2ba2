//! The plugin's configuration: whatever is accepted is within its documented bounds, and whatever is refused is refused
//! with words.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmroute::config::{Config, FilterConfig, Role};

fuzz_target!(|bytes: &[u8]| match Config::parse(bytes) {
    Ok(Config { role: Role::Filter(filter) }) => check(&filter),
    Ok(Config { role: Role::Publisher(_) }) => {}
    Err(error) => assert!(!error.path().is_empty() && error.to_string().contains("; write ")),
});

fn check(filter: &FilterConfig) {
    assert!(!filter.pools.is_empty() && !filter.paths.is_empty());
    assert!((1..=8).contains(&filter.max_destinations));
    assert!(filter.max_held_bytes > 0 && filter.max_index_age_ms > 0 && filter.max_page_reads > 0);
    let headers = [&filter.destination_header, &filter.rank_header];
    // Envoy takes header names in lower case alone.
    for name in headers.into_iter().chain(&filter.decision_header) {
        assert!(!name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase()), "{name}");
    }
    for pool in &filter.pools {
        assert!(!pool.name.is_empty());
        for cluster in &pool.clusters {
            assert!(filter.pool_for_cluster(cluster).is_some(), "nobody takes {cluster}");
        }
    }
    for path in ["", "/", "/v1/completions?a=b", "?", "/\u{e9}"] {
        let _ = filter.reads_path(path);
    }
}
