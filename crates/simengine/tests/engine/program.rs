//! The program itself: ready line and signals.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::DEADLINE;

const PROGRAM: &str = env!("CARGO_BIN_EXE_warmroute-simengine");

#[test]
fn prints_one_ready_line_and_stops_on_sigterm() {
    let mut program = Command::new(PROGRAM)
        .args(["--events", "tcp://127.0.0.1:0", "--replay", "tcp://127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let ready: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    for (endpoint, start) in
        [("listen", "127.0.0.1:"), ("events", "tcp://127.0.0.1:"), ("replay", "tcp://127.0.0.1:")]
    {
        let port = ready[endpoint].as_str().unwrap().strip_prefix(start).unwrap();
        assert_ne!(port.parse::<u16>().unwrap(), 0);
    }
    let killed = Command::new("kill").arg(program.id().to_string()).status().unwrap();
    assert!(killed.success());
    let started = Instant::now();
    let status = loop {
        if let Some(status) = program.try_wait().unwrap() {
            break status;
        }
        assert!(started.elapsed() < DEADLINE, "it does not stop");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
    assert!(lines.next().is_none(), "nothing else on stdout");
}

#[test]
fn an_endpoint_that_is_not_given_is_null_and_an_unknown_flag_is_refused() {
    let mut program = Command::new(PROGRAM).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&ready["events"], &ready["replay"]), (&Value::Null, &Value::Null));

    let refused = Command::new(PROGRAM).arg("--no-such-flag").stderr(Stdio::null()).status().unwrap();
    assert!(!refused.success());
}
