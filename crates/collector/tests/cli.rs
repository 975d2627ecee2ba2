//! The program, as a process.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const CONFIG: &str = "
listen: 127.0.0.1:0
ready_timeout_ms: 0
pools:
  - name: llama
    block_size: 16
    workers: [{address: '127.0.0.1:8001', events: 'tcp://127.0.0.1:1'}]
";

/// A file that is gone at the end of the test.
struct ConfigFile(PathBuf);

impl ConfigFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("warmroute-{}-{name}.yaml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn command(config: &ConfigFile) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmroute-collector"));
    command.arg("run").arg("--config").arg(&config.0);
    command
}

fn check(name: &str, text: &str) -> Output {
    command(&ConfigFile::new(name, text)).arg("--check").output().unwrap()
}

fn address_of(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    line["listen"].as_str().unwrap().to_owned()
}

#[test]
fn check_accepts_a_configuration() {
    let output = check("good", CONFIG);
    assert!(output.status.success());
    assert_eq!(output.stdout, b"configuration ok\n");
}

#[test]
fn check_refuses_what_is_none_and_says_where() {
    let output = check("bad", &CONFIG.replace("block_size: 16", "block_size: 0"));
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("pools[0].block_size: 0: write a number from 1 to 65536"), "{message}");
    let output = check("unknown", &CONFIG.replace("listen", "lisen"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("lisen"));
    let missing = ConfigFile(PathBuf::from("/nonexistent/warmroute.yaml"));
    assert_eq!(command(&missing).output().unwrap().status.code(), Some(2));
}

#[test]
fn serves_at_the_address_that_it_prints_until_it_is_told_to_stop() {
    for (signal, format) in [("TERM", "text"), ("INT", "json")] {
        let config = ConfigFile::new(signal, CONFIG);
        let mut child = command(&config)
            .args(["--log-format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let address = address_of(&mut child);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let body = runtime.block_on(async {
            reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap()
        });
        assert!(body.contains("warmroute_collector_workers_known{pool=\"llama\"} 1"), "{body}");
        assert!(
            Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success()
        );
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(log.contains("stopped") && log.contains(&address), "{log}");
        assert_eq!(log.lines().all(|line| line.starts_with('{')), format == "json", "{log}");
    }
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = ConfigFile::new("taken", &CONFIG.replace("127.0.0.1:0", &address));
    let output = command(&config).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains(&format!("cannot listen on {address}")));
}

/// A running collector, killed at the end of the test.
struct Running {
    child: Child,
    address: String,
    runtime: tokio::runtime::Runtime,
}

impl Running {
    fn start(config: &ConfigFile) -> Self {
        let mut child = command(config).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let address = address_of(&mut child);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { child, address, runtime }
    }

    fn get(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.address);
        self.runtime.block_on(async { reqwest::get(url).await.unwrap().text().await.unwrap() })
    }

    /// Waits until the metrics have a line.
    fn has(&self, line: &str) {
        for _ in 0..400 {
            if self.get("/metrics").lines().any(|other| other == line) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
        panic!("never: {line}\n{}", self.get("/metrics"));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn takes_over_a_configuration_that_changes_and_keeps_the_old_one_where_it_is_invalid() {
    let config = ConfigFile::new("watched", CONFIG);
    let collector = Running::start(&config);
    let known =
        |pool: &str, workers: u32| format!("warmroute_collector_workers_known{{pool=\"{pool}\"}} {workers}");
    collector.has(&known("llama", 1));

    // The file is looked at each second.
    let worker =
        |port: u16| format!("{{address: '127.0.0.1:{port}', events: 'tcp://127.0.0.1:{}'}}", port - 8000);
    let two = CONFIG.replace("workers: [", &format!("workers: [{}, ", worker(8002)));
    std::fs::write(&config.0, &two).unwrap();
    collector.has(&known("llama", 2));
    assert!(collector.get("/readyz").contains("\"ready\":true"));

    std::fs::write(&config.0, two.replace("block_size: 16", "block_size: x")).unwrap();
    collector.has("warmroute_collector_config_loads_total{result=\"invalid\"} 1");
    collector.has("warmroute_collector_config_valid 0");
    collector.has(&known("llama", 2));

    // Another worker, another pool; the first worker is gone, and with it what its gauges said.
    let other = format!("  - {{name: other, block_size: 32, workers: [{}]}}\n", worker(8003));
    std::fs::write(&config.0, format!("{}{other}", two.replace("127.0.0.1:8001", "127.0.0.1:8009"))).unwrap();
    let pid = collector.child.id().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &pid]).status().unwrap().success());
    collector.has(&known("other", 1));
    collector.has(&known("llama", 2));
    collector.has("warmroute_collector_config_valid 1");
    let metrics = collector.get("/metrics");
    let connected = |port: u16| format!("worker_connected{{pool=\"llama\",worker=\"127.0.0.1:{port}\"");
    assert!(!metrics.contains(&connected(8001)) && metrics.contains(&connected(8009)), "{metrics}");

    // A pool whose shape changes begins anew; one that is gone is not found.
    std::fs::write(&config.0, CONFIG.replace("block_size: 16", "block_size: 8")).unwrap();
    collector.has(&known("llama", 1));
    assert_eq!(collector.get("/v1/pools/other/feed"), "no pool is named `other`\n");
    assert!(!collector.get("/metrics").contains("workers_known{pool=\"other\"}"));
}
