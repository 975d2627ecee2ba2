//! Each rule of the configuration, by the whole message that breaking it gives.

use warmroute_routing::choose::{FirstToken, LeastLoad, LongestPrefix, Rule, Sticky, Weighed};

use super::{Config, FilterConfig, Mode, PathPattern, PublisherConfig, PublisherRole, Role, Steering};

fn filter(json: &str) -> FilterConfig {
    match Config::parse(json.as_bytes()) {
        Ok(Config { role: Role::Filter(filter) }) => filter,
        other => panic!("{json}: {other:?}"),
    }
}

fn publisher(json: &str) -> PublisherRole {
    match Config::parse(json.as_bytes()) {
        Ok(Config { role: Role::Publisher(publisher) }) => publisher,
        other => panic!("{json}: {other:?}"),
    }
}

#[track_caller]
fn refuses(json: &str, message: &str) {
    match Config::parse(json.as_bytes()) {
        Ok(config) => panic!("{json} is taken: {config:?}"),
        Err(error) => assert_eq!(error.to_string(), message, "{json}"),
    }
}

/// A filter's configuration with more fields.
#[track_caller]
fn refuses_field(fields: &str, message: &str) {
    refuses(&format!(r#"{{"pools": [{{"name": "llama"}}], {fields}}}"#), message);
}

#[test]
fn the_documented_filter_is_taken() {
    let config = filter(
        r#"{
          "role": "filter",
          "pools": [{ "name": "llama", "clusters": ["workers"] }],
          "mode": "observe",
          "paths": ["/v1/completions", "/own/*"],
          "prompt_headers": {
            "tokens": "x-t", "tokens_base64": "x-b", "block_hashes": "x-h", "model": "x-m", "cache_salt": "x-s"
          },
          "trust_block_hashes": true,
          "read_body": false,
          "max_held_bytes": 1000,
          "destination_header": "x-d",
          "decision_header": "x-warmroute-decision",
          "max_destinations": 8,
          "max_index_age_ms": 500,
          "max_page_reads": 6,
          "recent_routes_ms": 250,
          "wish_headers": { "subset": "x-subset", "session": "x-session", "load_scale": "x-scale" },
          "session_ttl_ms": 60000,
          "compare_every": 1,
          "publisher": { "cluster": "c", "authority": "a:1", "long_poll_ms": 100, "tick_ms": 10,
                         "max_answer_bytes": 4096, "lease_ms": 500 }
        }"#,
    );
    assert_eq!(config.pools[0].name, "llama");
    assert_eq!(config.pools[0].clusters, ["workers"]);
    assert_eq!(config.pools[0].prompts, None);
    assert_eq!(config.mode, Mode::Observe);
    assert_eq!(
        config.paths,
        [PathPattern::Exact("/v1/completions".into()), PathPattern::Prefix("/own/".into())]
    );
    let headers = &config.prompt_headers;
    assert_eq!(
        [&headers.tokens, &headers.tokens_base64, &headers.block_hashes, &headers.model, &headers.cache_salt],
        ["x-t", "x-b", "x-h", "x-m", "x-s"]
    );
    assert!(config.trust_block_hashes && !config.read_body);
    assert_eq!(config.max_held_bytes, 1000);
    assert_eq!(config.destination_header, "x-d");
    assert_eq!(config.decision_header.as_deref(), Some("x-warmroute-decision"));
    assert_eq!((config.max_destinations, config.max_index_age_ms, config.max_page_reads), (8, 500, 6));
    let publisher = PublisherConfig {
        cluster: "c".into(),
        authority: "a:1".into(),
        long_poll_ms: 100,
        tick_ms: 10,
        max_answer_bytes: 4096,
        lease_ms: 500,
    };
    assert_eq!(config.publisher, Some(publisher));
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let config = filter(r#"{"pools": [{"name": "llama"}]}"#);
    assert_eq!(config.mode, Mode::Steer);
    let paths = ["/v1/completions", "/inference/v1/generate", "/generate"];
    assert_eq!(config.paths, paths.map(|path| PathPattern::Exact(path.into())));
    let headers = &config.prompt_headers;
    assert_eq!(headers.tokens, "x-warmroute-tokens");
    assert_eq!(headers.tokens_base64, "x-warmroute-tokens-base64");
    assert_eq!(headers.block_hashes, "x-warmroute-block-hashes");
    assert_eq!(headers.model, "x-warmroute-model");
    assert_eq!(headers.cache_salt, "x-warmroute-cache-salt");
    assert!(!config.trust_block_hashes && config.read_body);
    assert_eq!(config.max_held_bytes, 786_432);
    assert_eq!(config.destination_header, "x-gateway-destination-endpoint");
    assert_eq!(config.decision_header, None);
    assert_eq!((config.max_destinations, config.max_index_age_ms, config.max_page_reads), (2, 30_000, 64));
    assert_eq!(config.publisher, None);
}

#[test]
fn the_publisher_role_is_taken() {
    let role = publisher(
        r#"{"role": "publisher", "pools": [{"name": "a"}, {"name": "b.c-d_9"}], "publisher": {"cluster": "wc"}}"#,
    );
    assert_eq!(role.pools, ["a", "b.c-d_9"]);
    let publisher = PublisherConfig {
        cluster: "wc".into(),
        authority: "wc".into(),
        long_poll_ms: 10_000,
        tick_ms: 25,
        max_answer_bytes: 65_536,
        lease_ms: 3_000,
    };
    assert_eq!(role.publisher, publisher);
}

#[test]
fn a_cluster_goes_to_its_pool_and_the_rest_to_the_one_without_clusters() {
    let both = filter(r#"{"pools": [{"name": "rest"}, {"name": "a", "clusters": ["x", "y"]}]}"#);
    assert_eq!(both.pool_for_cluster("y"), Some(1));
    assert_eq!(both.pool_for_cluster("z"), Some(0));
    let listed = filter(r#"{"pools": [{"name": "a", "clusters": ["x"]}]}"#);
    assert_eq!(listed.pool_for_cluster("x"), Some(0));
    assert_eq!(listed.pool_for_cluster("z"), None);
}

#[test]
fn paths_match_whole_or_by_prefix_without_the_query() {
    let config = filter(r#"{"pools": [{"name": "a"}], "paths": ["/v1/completions", "/own/*"]}"#);
    for path in ["/v1/completions", "/v1/completions?a=/b", "/v1/completions#x", "/own/", "/own/a/b?c"] {
        assert!(config.reads_path(path), "{path}");
    }
    for path in ["", "/", "?", "/v1/completions/", "/v1/completion", "/x?/v1/completions", "/own", "own/"] {
        assert!(!config.reads_path(path), "{path}");
    }
    assert!(filter(r#"{"pools": [{"name": "a"}], "paths": ["/*"]}"#).reads_path("/any"));
}

#[test]
fn text_prompts_are_waited_for_by_the_size_of_their_body_and_chats_are_read() {
    let config = filter(
        r#"{"pools": [{"name": "a", "prompts": {"cluster": "c"}}, {"name": "b", "clusters": ["w"]}]}"#,
    );
    let prompts = config.pools[0].prompts.as_ref().unwrap();
    assert_eq!((prompts.cluster.as_str(), prompts.authority.as_str()), ("c", "c"));
    assert!(!prompts.hand_over_tokens);
    assert_eq!([0, 1023, 4095, 4096, 128 << 10].map(|bytes| prompts.budget_ms(bytes)), [30, 30, 30, 31, 62]);
    assert_eq!(config.pools[1].prompts, None);
    for path in ["/v1/completions", "/v1/chat/completions?x", "/v1/responses", "/v1/messages", "/generate"] {
        assert!(config.reads_path(path), "{path}");
    }
    let own = filter(
        r#"{"pools": [{"name": "a", "prompts": {"cluster": "c", "authority": "d:1", "max_wait_ms": 1,
        "max_wait_us_per_kib": 0}}], "paths": ["/own"]}"#,
    );
    let prompts = own.pools[0].prompts.as_ref().unwrap();
    assert_eq!((prompts.authority.as_str(), prompts.budget_ms(u64::MAX)), ("d:1", 1));
    assert!(own.reads_path("/own") && !own.reads_path("/v1/chat/completions"));
}

#[test]
fn text_prompts_that_cannot_be_asked_about_are_refused() {
    refuses(
        r#"{"pools": [{"name": "a", "prompts": {}}]}"#,
        "pools[0].prompts.cluster: is missing and has no default; write the name of the collector's Envoy cluster",
    );
    refuses(
        r#"{"pools": [{"name": "a", "prompts": {"cluster": "c", "max_wait_ms": 0}}]}"#,
        "pools[0].prompts.max_wait_ms: must be a whole number from 1 to 10000, not 0; write such a number, or leave it \
         out for 30",
    );
    refuses(
        r#"{"pools": [{"name": "a", "prompts": {"cluster": "c", "wait_ms": 5}}]}"#,
        "pools[0].prompts.wait_ms: is not a field that can stand here; write only cluster, authority, max_wait_ms, \
         max_wait_us_per_kib, hand_over_tokens",
    );
    refuses(
        r#"{"pools": [{"name": "a", "prompts": {"cluster": "c"}}], "read_body": false}"#,
        "read_body: is false, but pools[0].prompts needs the body; write true, or no prompts",
    );
}

#[test]
fn what_is_not_one_json_object_is_refused() {
    let advice = "; write one JSON object with at least the field pools";
    refuses("", &format!("the configuration: is empty{advice}"));
    refuses(" \n", &format!("the configuration: is empty{advice}"));
    refuses(
        "{",
        &format!("the configuration: is not JSON (EOF while parsing an object at line 1 column 1){advice}"),
    );
    refuses(
        "{} x",
        &format!("the configuration: is not JSON (trailing characters at line 1 column 4){advice}"),
    );
    refuses("[]", "the configuration: must be an object, not a list; write its fields in braces");
    refuses("null", "the configuration: must be an object, not null; write its fields in braces");
    assert!(Config::parse(b"\xff").is_err());
    assert!(Config::parse("[".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn an_unknown_field_is_refused_at_every_level() {
    let known = "role, pools, mode, paths, prompt_headers, trust_block_hashes, read_body, max_held_bytes, steering, \
                 destination_header, rank_header, decision_header, max_destinations, max_index_age_ms, max_page_reads, recent_routes_ms, wish_headers, session_ttl_ms, compare_every, publisher";
    refuses_field(
        r#""max_destination": 2"#,
        &format!("max_destination: is not a field that can stand here; write only {known}"),
    );
    refuses_field(
        r#""a b\n": 2"#,
        &format!(r#""a b\n": is not a field that can stand here; write only {known}"#),
    );
    refuses(
        r#"{"pools": [{"name": "a", "cluster": "b"}]}"#,
        "pools[0].cluster: is not a field that can stand here; write only name, clusters, policy, prompts",
    );
    refuses_field(
        r#""prompt_headers": {"token": "x-a"}"#,
        "prompt_headers.token: is not a field that can stand here; write only tokens, tokens_base64, block_hashes, \
         model, cache_salt",
    );
    refuses_field(
        r#""publisher": {"cluster": "a", "poll_ms": 5}"#,
        "publisher.poll_ms: is not a field that can stand here; write only cluster, authority, long_poll_ms, tick_ms, \
         max_answer_bytes, lease_ms",
    );
    refuses(
        r#"{"role": "publisher", "pools": [{"name": "a"}], "publisher": {"cluster": "a"}, "mode": "steer"}"#,
        "mode: is not a field that can stand here; write only role, pools, publisher",
    );
    refuses(
        r#"{"role": "publisher", "pools": [{"name": "a", "clusters": ["w"]}], "publisher": {"cluster": "a"}}"#,
        "pools[0].clusters: is not a field that can stand here; write only name",
    );
}

#[test]
fn a_field_given_twice_is_refused() {
    refuses_field(r#""read_body": true, "read_body": false"#, "read_body: is given twice; write it once");
    refuses(r#"{"pools": [{"name": "a", "name": "b"}]}"#, "pools[0].name: is given twice; write it once");
}

#[test]
fn the_role_and_the_mode_are_one_of_two() {
    refuses_field(
        r#""role": "collector""#,
        r#"role: must be "filter" or "publisher", not "collector"; write one of them"#,
    );
    refuses_field(r#""role": null"#, r#"role: must be "filter" or "publisher", not null; write one of them"#);
    refuses_field(
        r#""mode": "watch""#,
        r#"mode: must be "steer" or "observe", not "watch"; write one of them"#,
    );
    refuses_field(r#""mode": 1.5"#, r#"mode: must be "steer" or "observe", not 1.5; write one of them"#);
}

#[test]
fn the_steering_is_one_of_two() {
    let steering =
        |value: &str| filter(&format!(r#"{{"pools":[{{"name":"p"}}],"steering":{value}}}"#)).steering;
    assert_eq!(steering(r#""override_host""#), Steering::OverrideHost);
    assert_eq!(steering(r#""stateful_session""#), Steering::StatefulSession);
    refuses_field(
        r#""steering":"original_dst""#,
        r#"steering: must be "override_host" or "stateful_session", not "original_dst"; write one of them"#,
    );
}

#[test]
fn a_pool_has_a_policy_with_its_weights() {
    let policy = |json: &str| filter(&format!(r#"{{"pools":[{{"name":"p"{json}}}]}}"#)).pools[0].policy;
    assert_eq!(policy(""), Rule::FirstToken(FirstToken::default()));
    assert_eq!(policy(r#","policy":{"name":"default"}"#), policy(""));
    let careful = FirstToken { scarcity: 12.0, ..FirstToken::default() };
    assert_eq!(policy(r#","policy":{"name":"default","scarcity":12}"#), Rule::FirstToken(careful));
    assert_eq!(policy(r#","policy":{"name":"prefix"}"#), Rule::Prefix(LongestPrefix));
    assert_eq!(policy(r#","policy":{"name":"least_load"}"#), Rule::LeastLoad(LeastLoad));
    let weighed = Weighed { request_weight: 2.0, gpu_credit: 0.9, ..Weighed::default() };
    assert_eq!(
        policy(r#","policy":{"name":"cost","request_weight":2,"gpu_credit":0.9}"#),
        Rule::Cost(weighed)
    );
    let sticky = Sticky { least_share: 0.5, ..Sticky::default() };
    assert_eq!(policy(r#","policy":{"name":"sticky","least_share":0.5}"#), Rule::Sticky(sticky));
    let refused = |json: &str, message: &str| {
        refuses(&format!(r#"{{"pools":[{{"name":"p","policy":{json}}}]}}"#), message);
    };
    refused(
        r#"{"name":"cost","cpu_credit":1.5}"#,
        "pools[0].policy.cpu_credit: must be a number from 0 to 1, not 1.5; write such a number, or leave it out for 0.75",
    );
    refused(
        r#"{"name":"cost","gpu_credit":0.5}"#,
        "pools[0].policy.cpu_credit: is 0.75, more than a faster tier's credit, which is 0.5; write less or as much",
    );
    refused(
        r#"{"name":"default","cpu_credit":0.2}"#,
        "pools[0].policy.disk_credit: is 0.25, more than a faster tier's credit, which is 0.2; write less or as much",
    );
    refused(
        r#"{"name":"prefix","least_share":1}"#,
        "pools[0].policy.least_share: is not a field that can stand here; write only name",
    );
}

#[test]
fn pools_are_a_list_with_at_least_one() {
    let advice = r#"; write a list such as [{"name": "llama", "clusters": ["workers"]}]"#;
    refuses("{}", &format!("pools: is missing and has no default{advice}"));
    refuses(r#"{"pools": []}"#, &format!("pools: must have at least one pool{advice}"));
    refuses(r#"{"pools": {"a": 1}}"#, &format!("pools: must be a list of pools, not an object{advice}"));
    refuses(r#"{"pools": ["a"]}"#, r#"pools[0]: must be an object, not "a"; write its fields in braces"#);
    refuses(
        r#"{"role": "publisher", "publisher": {"cluster": "a"}}"#,
        r#"pools: is missing and has no default; write a list such as [{"name": "llama"}]"#,
    );
}

#[test]
fn a_pool_name_keeps_to_its_alphabet_and_length() {
    let advice = "; write the pool's name in the collector's configuration";
    let rule = "must be a name of a-z, 0-9, -, _ and ., 1 to 63 bytes long";
    refuses(r#"{"pools": [{}]}"#, &format!("pools[0].name: is missing and has no default{advice}"));
    for name in [r#""Llama""#, r#""""#, r#""a b""#, r#""ä""#, r#""a/b""#, "7", "true"] {
        refuses(
            &format!(r#"{{"pools": [{{"name": {name}}}]}}"#),
            &format!("pools[0].name: {rule}, not {name}{advice}"),
        );
    }
    let longest = "a".repeat(63);
    assert_eq!(filter(&format!(r#"{{"pools": [{{"name": "{longest}"}}]}}"#)).pools[0].name, longest);
    let quoted = "a".repeat(60);
    refuses(
        &format!(r#"{{"pools": [{{"name": "{longest}a"}}]}}"#),
        &format!(r#"pools[0].name: {rule}, not "{quoted}" and so on{advice}"#),
    );
}

#[test]
fn pools_share_neither_names_nor_clusters() {
    refuses(
        r#"{"pools": [{"name": "a", "clusters": ["x"]}, {"name": "a"}]}"#,
        r#"pools[1].name: is "a", as pools[0].name is; write each pool once"#,
    );
    refuses(
        r#"{"role": "publisher", "pools": [{"name": "a"}, {"name": "a"}], "publisher": {"cluster": "c"}}"#,
        r#"pools[1].name: is "a", as pools[0].name is; write each pool once"#,
    );
    refuses(
        r#"{"pools": [{"name": "a", "clusters": ["x"]}, {"name": "b", "clusters": ["y", "x"]}]}"#,
        r#"pools[1].clusters[1]: names "x", which belongs to pools[0] already; write each cluster in one pool only"#,
    );
    refuses(
        r#"{"pools": [{"name": "a", "clusters": ["x", "x"]}]}"#,
        r#"pools[0].clusters[1]: names "x" a second time; write each cluster once"#,
    );
    refuses(
        r#"{"pools": [{"name": "a"}, {"name": "b", "clusters": ["x"]}, {"name": "c", "clusters": []}]}"#,
        "pools[2].clusters: is empty, but only one pool may take the requests of all other clusters, and pools[0] \
         does; write a list of names such as [\"workers\"]",
    );
}

#[test]
fn clusters_are_a_list_of_names() {
    refuses(
        r#"{"pools": [{"name": "a", "clusters": "x"}]}"#,
        r#"pools[0].clusters: must be a list of the names of Envoy clusters, not "x"; write a list of names such as ["workers"]"#,
    );
    for name in [r#""""#, "3", r#""a\nb""#] {
        refuses(
            &format!(r#"{{"pools": [{{"name": "a", "clusters": [{name}]}}]}}"#),
            &format!(
                r#"pools[0].clusters[0]: must be the name of an Envoy cluster, not {name}; write it as Envoy has it, for example "workers""#
            ),
        );
    }
}

#[test]
fn a_path_begins_with_a_slash_and_ends_with_the_only_star() {
    let rule = "must be a request path that begins with / and has no query, blank or * within";
    let advice = r#"write for example "/v1/completions", or "/v1/*" for every path that begins so"#;
    for path in
        [r#""v1""#, r#""""#, r#""*""#, r#""/a*b""#, r#""/a**""#, r#""/a?b""#, r#""/a#b""#, r#""/a b""#, "1"]
    {
        refuses_field(
            &format!(r#""paths": ["/ok", {path}]"#),
            &format!("paths[1]: {rule}, not {path}; {advice}"),
        );
    }
    let advice = r#"write a list such as ["/v1/completions"]"#;
    refuses_field(
        r#""paths": "/a""#,
        &format!(r#"paths: must be a list of request paths, not "/a"; {advice}"#),
    );
    refuses_field(
        r#""paths": []"#,
        &format!("paths: is empty, so that no prompt would ever be read; {advice}"),
    );
}

#[test]
fn a_header_name_is_lower_case_and_legal() {
    let rule = "must be the name of a header, in lower case";
    let advice = r#"write letters, digits and dashes, for example "x-my-header""#;
    for name in
        [r#""X-A""#, r#""""#, r#""x a""#, r#""x:a""#, r#""x-ä""#, r#""x\r\na""#, r#""x,y""#, "5", "null"]
    {
        for (field, path) in [
            (format!(r#""destination_header": {name}"#), "destination_header"),
            (format!(r#""decision_header": {name}"#), "decision_header"),
            (format!(r#""prompt_headers": {{"model": {name}}}"#), "prompt_headers.model"),
        ] {
            refuses_field(&field, &format!("{path}: {rule}, not {name}; {advice}"));
        }
    }
    refuses_field(
        r#""prompt_headers": ["x-a"]"#,
        "prompt_headers: must be an object, not a list; write its fields in braces",
    );
}

#[test]
fn a_header_of_http_or_envoy_is_not_taken_over() {
    let advice = "write a name that HTTP and Envoy do not use themselves";
    for name in
        ["host", ":path", ":authority", "x-envoy-retry-on", "content-length", "transfer-encoding", "te"]
    {
        refuses_field(
            &format!(r#""prompt_headers": {{"tokens": "{name}"}}"#),
            &format!(r#"prompt_headers.tokens: must be a header of your own, not "{name}"; {advice}"#),
        );
    }
}

#[test]
fn no_two_headers_have_one_name() {
    let advice = "write another name for one of them";
    refuses_field(
        r#""prompt_headers": {"tokens": "x-a", "model": "x-a"}"#,
        &format!(r#"prompt_headers.model: is "x-a", as prompt_headers.tokens is; {advice}"#),
    );
    refuses_field(
        r#""destination_header": "x-warmroute-tokens""#,
        &format!(r#"destination_header: is "x-warmroute-tokens", as prompt_headers.tokens is; {advice}"#),
    );
    refuses_field(
        r#""decision_header": "x-gateway-destination-endpoint""#,
        &format!(
            r#"decision_header: is "x-gateway-destination-endpoint", as destination_header is; {advice}"#
        ),
    );
}

#[test]
fn a_flag_is_true_or_false() {
    for name in ["trust_block_hashes", "read_body"] {
        refuses_field(
            &format!(r#""{name}": "true""#),
            &format!(r#"{name}: must be true or false, not "true"; write one of them, without quotes"#),
        );
    }
}

#[test]
fn a_number_is_whole_and_in_its_range() {
    for (name, least, most, default) in [
        ("max_held_bytes", 1, 67_108_864, 786_432),
        ("max_destinations", 1, 8, 2),
        ("max_index_age_ms", 1, 86_400_000, 30_000),
        ("max_page_reads", 1, 4_096, 64),
    ] {
        for wrong in ["0", "-1", "2.5", "2.0", "\"2\"", "null", "18446744073709551615", "1e300", "[1]"] {
            let shown = if wrong == "[1]" { "a list" } else { wrong };
            refuses_field(
                &format!(r#""{name}": {wrong}"#),
                &format!(
                    "{name}: must be a whole number from {least} to {most}, not {shown}; write such a number, or leave \
                     it out for {default}"
                ),
            );
        }
        let json = |value| format!(r#"{{"pools": [{{"name": "a"}}], "{name}": {value}}}"#);
        filter(&json(least));
        filter(&json(most));
        assert!(Config::parse(json(most + 1).as_bytes()).is_err());
    }
}

#[test]
fn the_publishers_numbers_have_ranges() {
    for (name, least, most, default) in [
        ("long_poll_ms", 100, 60_000, 10_000),
        ("tick_ms", 10, 5_000, 25),
        ("max_answer_bytes", 4_096, 8_388_608, 65_536),
        ("lease_ms", 500, 60_000, 3_000),
    ] {
        for wrong in [least - 1, most + 1] {
            refuses_field(
                &format!(r#""publisher": {{"cluster": "c", "{name}": {wrong}}}"#),
                &format!(
                    "publisher.{name}: must be a whole number from {least} to {most}, not {wrong}; write such a \
                     number, or leave it out for {default}"
                ),
            );
        }
    }
}

#[test]
fn an_index_may_be_older_than_a_long_poll_lasts() {
    refuses_field(
        r#""max_index_age_ms": 3000, "publisher": {"cluster": "c", "long_poll_ms": 3000}"#,
        "max_index_age_ms: is 3000, but must be more than publisher.long_poll_ms, which is 3000; \
         write a larger age or a shorter poll",
    );
}

#[test]
fn a_lease_outlives_a_tick() {
    for lease in [500, 600] {
        refuses_field(
            &format!(r#""publisher": {{"cluster": "c", "tick_ms": 600, "lease_ms": {lease}}}"#),
            &format!(
                "publisher.lease_ms: is {lease}, but must be more than tick_ms, which is 600; write a longer lease or a \
                 shorter tick"
            ),
        );
    }
}

#[test]
fn the_publisher_names_the_collector() {
    refuses_field(
        r#""publisher": {}"#,
        "publisher.cluster: is missing and has no default; write the name of the collector's Envoy cluster",
    );
    refuses_field(
        r#""publisher": "c""#,
        r#"publisher: must be an object, not "c"; write its fields in braces"#,
    );
    refuses_field(
        r#""publisher": {"cluster": ""}"#,
        r#"publisher.cluster: must be the name of an Envoy cluster, not ""; write it as Envoy has it, for example "workers""#,
    );
    for name in [r#""""#, r#""a b""#, r#""a/b""#, r#""http://a""#, "1"] {
        refuses_field(
            &format!(r#""publisher": {{"cluster": "c", "authority": {name}}}"#),
            &format!(
                r#"publisher.authority: must be a host name or an address, with a port or without, not {name}; write for example "warmroute-collector:9400""#
            ),
        );
    }
    refuses(
        r#"{"role": "publisher", "pools": [{"name": "a"}]}"#,
        r#"publisher: is missing and has no default; write an object such as {"cluster": "warmroute-collector"}"#,
    );
}

#[test]
fn the_error_tells_its_path() {
    let error = Config::parse(br#"{"pools": [{"name": ""}]}"#).unwrap_err();
    assert_eq!(error.path(), "pools[0].name");
    assert_eq!(Config::parse(b"").unwrap_err().path(), "the configuration");
}
