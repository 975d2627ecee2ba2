use serde_json::{Value, json};

use super::*;

fn here() -> SocketAddr {
    "10.0.0.1:8000".parse().unwrap()
}

fn vllm(sources: &Value) -> Result<Vec<String>, AskError> {
    vllm::source_of(serde_json::from_value(sources.clone()).unwrap(), here()).map(|source| shown(&source))
}

fn sglang(info: &Value, address: SocketAddr) -> Result<(Vec<String>, Option<u32>), AskError> {
    let found = sglang::found(serde_json::from_value(info.clone()).unwrap(), address)?;
    Ok((shown(&found.source), found.block_size))
}

fn shown(source: &EventSource) -> Vec<String> {
    let EventSource::Published(publishers) = source else { panic!("{source:?}") };
    let replay =
        |replay: &Option<Endpoint>| replay.as_ref().map_or(String::new(), |replay| format!(" {replay}"));
    publishers.iter().map(|publisher| format!("{}{}", publisher.events, replay(&publisher.replay))).collect()
}

#[test]
fn vllm_tells_each_rank_as_it_came_to_be() {
    let rank = |port: u16| {
        json!({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": format!("tcp://*:{port}"),
            "replay_endpoint": format!("tcp://*:{}", port + 100), "buffer_steps": 10000, "topic": "kv@a@m"})
    };
    assert_eq!(
        vllm(&json!({"1": rank(5558), "0": rank(5557)})).unwrap(),
        ["tcp://10.0.0.1:5557 tcp://10.0.0.1:5657", "tcp://10.0.0.1:5558 tcp://10.0.0.1:5658"]
    );
    // A port that the system gave, on the node's own address; no replay; the only rank of a larger deployment here.
    let free = json!({"endpoint": "tcp://10.0.0.9:34567", "replay_endpoint": null});
    assert_eq!(vllm(&json!({"3": free})).unwrap(), ["tcp://10.0.0.9:34567"]);
    assert!(
        matches!(vllm(&json!({"2": rank(1), "3": rank(2)})), Err(AskError::Ranks(ranks)) if ranks == [2, 3])
    );
    for off in [
        json!({}),
        json!({"0": {"enable_kv_cache_events": false, "endpoint": "tcp://*:1"}}),
        json!({"0": {"publisher": "null", "endpoint": "tcp://*:1"}}),
    ] {
        assert!(matches!(vllm(&off), Err(AskError::Off(_))), "{off}");
    }
    for wrong in ["ipc:///tmp/x", "tcp://*:0", "inproc://x", "tcp://*"] {
        assert!(matches!(vllm(&json!({"0": {"endpoint": wrong}})), Err(AskError::Endpoint(_))), "{wrong}");
    }
}

#[test]
fn vllms_block_size_is_the_one_that_fits() {
    let metrics = "# HELP vllm:cache_config_info x\n# TYPE vllm:cache_config_info gauge\n\
        vllm:cache_config_info{engine=\"0\",block_size=\"32\",hash_block_size=\"16\",num_gpu_blocks=\"20\"} 1.0\n";
    assert_eq!(vllm::block_size_of(metrics, 16), Some(16));
    assert_eq!(vllm::block_size_of(metrics, 32), Some(32));
    assert_eq!(vllm::block_size_of(metrics, 64), Some(32));
    let first =
        "vllm:cache_config_info{block_size=\"128\",cache_dtype=\"auto\",hash_block_size=\"None\"} 1.0";
    assert_eq!(vllm::block_size_of(first, 16), Some(128));
    assert_eq!(vllm::block_size_of("vllm:num_requests_running{} 0\n", 16), None);
    assert_eq!(vllm::block_size_of("vllm:cache_config_info{block_size=\"", 16), None);
}

#[test]
fn sglang_tells_the_first_port_and_how_many() {
    let info = json!({"version": "0.5.23", "kv_events": {"publisher": "zmq", "endpoint_host": "*",
        "endpoint_port_base": 5557, "replay_endpoint_port_base": 5657, "topic": "kv", "block_size": 64, "dp_size": 2}});
    let two = ["tcp://10.0.0.1:5557 tcp://10.0.0.1:5657", "tcp://10.0.0.1:5558 tcp://10.0.0.1:5658"];
    assert_eq!(sglang(&info, here()).unwrap(), (two.map(String::from).to_vec(), Some(64)));
    let v6 = json!({"kv_events": {"endpoint_host": "0.0.0.0", "endpoint_port_base": 5557}});
    let address = "[fd00::7]:8000".parse().unwrap();
    assert_eq!(sglang(&v6, address).unwrap(), (vec!["tcp://[fd00::7]:5557".to_owned()], None));
    let several_hosts = json!({"kv_events": {"endpoint_host": "*", "endpoint_port_base": 5557, "dp_size": 2,
        "replay_endpoint_port_base": 5657, "publishers": [{"dp_rank": 1, "endpoint": "tcp://10.0.0.2:5558"}]}});
    assert_eq!(
        sglang(&several_hosts, here()).unwrap().0,
        ["tcp://10.0.0.1:5557 tcp://10.0.0.1:5657", "tcp://10.0.0.2:5558 tcp://10.0.0.2:5658"]
    );
    for off in [json!({}), json!({"kv_events": null})] {
        assert!(matches!(sglang(&off, here()), Err(AskError::Off(_))), "{off}");
    }
    let past = json!({"kv_events": {"endpoint_host": "*", "endpoint_port_base": 65535, "dp_size": 2}});
    assert!(matches!(sglang(&past, here()), Err(AskError::Endpoint(_))));
}
