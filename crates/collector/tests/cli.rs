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
