//! The shipped configurations are what they say they are.

use std::process::Command;

use warmroute_e2e::workspace::{self, ScratchDir};
use warmroute_e2e::{Bootstrap, envoy};

/// Envoy reads the file itself, not the harness's rendering of it: YAML that only our parser accepts would not do.
#[test]
fn envoy_accepts_the_file_as_it_is_but_for_the_path() {
    let dir = ScratchDir::new("shipped").unwrap();
    let text = std::fs::read_to_string(workspace::root().join("envoy/envoy.yaml")).unwrap();
    let plugin = workspace::plugin().unwrap();
    let shipped = "target/wasm32-wasip1/wasm/warmroute.wasm";
    assert!(text.contains(shipped));
    std::fs::write(dir.path().join("envoy.yaml"), text.replace(shipped, &plugin.display().to_string()))
        .unwrap();
    envoy::validate_file(&dir.path().join("envoy.yaml")).unwrap();
    dir.remove().unwrap();
}

#[test]
fn envoy_accepts_what_the_harness_makes_of_it() {
    let dir = ScratchDir::new("rendered").unwrap();
    let mut bootstrap = Bootstrap::shipped().unwrap();
    bootstrap.set_plugin(&workspace::plugin().unwrap()).unwrap();
    bootstrap.set_endpoints("workers", &["127.0.0.1:1".parse().unwrap()]).unwrap();
    let path = dir.path().join("envoy.json");
    std::fs::write(&path, bootstrap.to_json()).unwrap();
    envoy::validate_file(&path).unwrap();
    dir.remove().unwrap();
}

#[test]
fn the_collector_accepts_its_file() {
    let collector = workspace::program("warmroute-collector").unwrap();
    let config = workspace::root().join("envoy/collector.yaml");
    let run = Command::new(collector).args(["run", "--check", "--config"]).arg(config).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
