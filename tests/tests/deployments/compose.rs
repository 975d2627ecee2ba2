//! `envoy/docker-compose.yaml`: its parts fit together, and run.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use warmroute_e2e::process::Process;
use warmroute_e2e::workspace::{self, ScratchDir};
use warmroute_e2e::{Bootstrap, Client, envoy_binary, tokens, wait};

const ENGINES: [&str; 4] = ["engine-1", "engine-2", "engine-3", "engine-4"];
/// Says to this program, started anew, that it is in a network of its own.
const IN_OWN_NETWORK: &str = "WARMROUTE_IN_OWN_NETWORK";
const DEADLINE: Duration = Duration::from_secs(60);

fn dir() -> PathBuf {
    workspace::root().join("envoy")
}

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(dir().join(file)).unwrap()).unwrap()
}

fn service(name: &str) -> Value {
    let mut compose = yaml("docker-compose.yaml");
    let service = compose["services"][name].take();
    assert!(service.is_object(), "there is no service {name}");
    service
}

fn command(service: &Value) -> Vec<String> {
    service["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// A service's mounts: source, as it is written, and target.
fn mounts(service: &Value) -> Vec<(String, String)> {
    let list = service["volumes"].as_array().cloned().unwrap_or_default();
    let mount = |text: &Value| {
        let mut parts = text.as_str().unwrap().split(':');
        (parts.next().unwrap().to_owned(), parts.next().unwrap().to_owned())
    };
    list.iter().map(mount).collect()
}

/// The file on this machine that a service sees as `path`.
fn mounted(service: &Value, path: &str) -> PathBuf {
    let mounts = mounts(service);
    let found = mounts.iter().find(|(_, target)| target == path);
    let (source, _) = found.unwrap_or_else(|| panic!("nothing is mounted at {path}"));
    dir().join(source)
}

/// The value of an engine's flag.
fn flag(service: &Value, name: &str) -> String {
    let command = command(service);
    let at = command.iter().position(|word| word == name).unwrap_or_else(|| panic!("no {name}"));
    command[at + 1].clone()
}

/// Says so even where the output of tests that pass is not shown.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

#[test]
fn the_engines_flags_are_ones_that_the_simulated_engine_has() {
    for name in ENGINES {
        // What stands before --help is parsed before it.
        let mut engine = Command::new(workspace::program("warmroute-simengine").unwrap());
        let run = engine.args(command(&service(name))).arg("--help").output().unwrap();
        assert!(run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stderr));
    }
}

#[test]
fn engines_collector_and_envoy_mean_the_same_addresses() {
    let by_compose: Vec<_> = ENGINES
        .map(service)
        .iter()
        .map(|engine| ["--listen", "--events", "--replay"].map(|name| flag(engine, name)))
        .collect();
    let collector = yaml("collector.yaml");
    let by_collector: Vec<_> = collector["pools"][0]["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| ["address", "events", "replay"].map(|field| worker[field].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(by_compose, by_collector);

    let mut bootstrap = Bootstrap::shipped().unwrap();
    let mut endpoints = |cluster: &str| -> Vec<String> {
        let list =
            bootstrap.cluster(cluster).unwrap()["load_assignment"]["endpoints"][0]["lb_endpoints"].take();
        let address = |endpoint: &Value| {
            let socket = &endpoint["endpoint"]["address"]["socket_address"];
            format!("{}:{}", socket["address"].as_str().unwrap(), socket["port_value"])
        };
        list.as_array().unwrap().iter().map(address).collect()
    };
    let addresses: Vec<_> = by_compose.iter().map(|[address, ..]| address.clone()).collect();
    assert_eq!(endpoints("workers"), addresses);
    assert_eq!(endpoints("warmroute-collector"), [collector["listen"].as_str().unwrap()]);
    // All of them say 127.0.0.1, so all must share one network.
    for name in ENGINES.into_iter().chain(["collector", "envoy"]) {
        assert_eq!(service(name)["network_mode"], "host", "{name}");
    }
}

#[test]
fn the_collector_accepts_its_command() {
    let collector = service("collector");
    let mut words = command(&collector);
    let config = words.pop().unwrap();
    let mut run = Command::new(workspace::program("warmroute-collector").unwrap());
    let run = run.args(words).arg(mounted(&collector, &config)).arg("--check").output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn envoy_finds_the_shipped_configuration_and_the_plugin_where_it_looks() {
    let envoy = service("envoy");
    let home = envoy["working_dir"].as_str().unwrap();
    let words = command(&envoy);
    let at = words.iter().position(|word| word == "--config-path").unwrap();
    let config = mounted(&envoy, &format!("{home}/{}", words[at + 1]));
    assert_eq!(config.canonicalize().unwrap(), dir().join("envoy.yaml").canonicalize().unwrap());

    let mut bootstrap = Bootstrap::shipped().unwrap();
    let plugin = bootstrap.filter().unwrap()["vm_config"]["code"]["local"]["filename"].take();
    let (folder, file) = plugin.as_str().unwrap().rsplit_once('/').unwrap();
    let volume = mounts(&envoy).into_iter().find(|(_, target)| *target == format!("{home}/{folder}"));
    let (volume, _) = volume.expect("the plugin's folder is mounted");
    let builder = service("plugin");
    let [(source, target)] = &mounts(&builder)[..] else { panic!("the builder has one mount") };
    assert_eq!(*source, volume);
    assert!(yaml("docker-compose.yaml")["volumes"].get(&volume).is_some());
    assert_eq!(command(&builder), ["cp", &format!("/{file}"), &format!("{target}/{file}")]);
    assert_eq!(envoy["depends_on"]["plugin"]["condition"], "service_completed_successfully");
}

#[test]
fn images_are_the_official_ones_of_the_versions_that_are_tested() {
    assert_eq!(service("envoy")["image"], format!("envoyproxy/envoy:v{}", envoy_binary::VERSION));
    let toolchain = fs::read_to_string(workspace::root().join("rust-toolchain.toml")).unwrap();
    let rust = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    for (name, program) in [
        ("collector", "warmroute-collector"),
        ("engine-1", "warmroute-simengine"),
        ("plugin", "warmroute.wasm"),
    ] {
        let build = &service(name)["build"];
        assert_eq!(build["context"], "..", "{name}");
        let path = workspace::root().join(build["dockerfile"].as_str().unwrap());
        let text = fs::read_to_string(&path).unwrap();
        let instructions: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(instructions[1], format!("FROM rust:{rust}-slim-trixie AS build"), "{name}");
        assert!(instructions.contains(&format!("ENV RUSTUP_TOOLCHAIN={rust}").as_str()), "{name}");
        assert!(text.contains(&format!("/{program}")), "{name}");
        // Nothing that was built here, nor the history, goes to the builder.
        let ignored = fs::read_to_string(format!("{}.dockerignore", path.display())).unwrap();
        assert_eq!(ignored.lines().collect::<Vec<_>>(), [".git", "target"], "{name}");
        if let Some(target) = build["target"].as_str() {
            assert!(text.contains(&format!(" AS {target}")), "{name}");
            continue;
        }
        let user = instructions.iter().find_map(|line| line.strip_prefix("USER ")).unwrap_or("0");
        assert!(!user.starts_with('0') && user != "root", "{name} runs as {user}");
        assert!(instructions.contains(&format!("ENTRYPOINT [\"{program}\"]").as_str()), "{name}");
    }
}

#[test]
fn docker_compose_accepts_the_file() {
    let there = Command::new("docker").args(["compose", "version"]).output();
    if !there.is_ok_and(|run| run.status.success()) {
        skipped("`docker compose` does not exist here, so it could not judge envoy/docker-compose.yaml");
        return;
    }
    let config = ["compose", "--file", "envoy/docker-compose.yaml", "config", "--quiet"];
    let run = Command::new("docker").args(config).current_dir(workspace::root()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// The services' own commands, on the ports of the files as they are. The ports may be taken on this machine, so all runs
/// in a network namespace, with nothing in it but a loopback interface; only the containers are missing.
#[tokio::test]
async fn the_services_run_as_they_stand() -> Result<()> {
    if env::var_os(IN_OWN_NETWORK).is_some() {
        return run_services().await;
    }
    let own_network = ["--map-root-user", "--net"];
    let possible = Command::new("unshare").args(own_network).args(["ip", "link", "set", "lo", "up"]).output();
    if !possible.is_ok_and(|run| run.status.success()) {
        skipped("this machine allows no network namespace, so the services could not be run");
        return Ok(());
    }
    let mut again = Command::new("unshare");
    again.args(own_network).arg(env::current_exe()?).env(IN_OWN_NETWORK, "1");
    // From there it could not be fetched.
    again.env("WARMROUTE_ENVOY", std::path::absolute(envoy_binary::path()?)?);
    again.args(["--exact", "compose::the_services_run_as_they_stand", "--nocapture"]);
    let run = tokio::task::spawn_blocking(move || again.output()).await??;
    let said = [run.stdout, run.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    ensure!(run.status.success() && said.contains("1 passed"), "{said}");
    Ok(())
}

async fn run_services() -> Result<()> {
    ensure!(
        Command::new("ip").args(["link", "set", "lo", "up"]).status()?.success(),
        "no loopback interface"
    );
    let dir = ScratchDir::new("compose")?;
    let spawn = |name: &str, command: &mut Command| {
        Process::spawn(
            name,
            command,
            &dir.path().join(format!("{name}.out")),
            &dir.path().join(format!("{name}.log")),
        )
    };
    let mut running = Vec::new();
    for name in ENGINES {
        let mut engine = Command::new(workspace::program("warmroute-simengine")?);
        running.push(spawn(name, engine.args(command(&service(name))))?);
    }

    let collector = service("collector");
    let mut words = command(&collector);
    let config = words.pop().context("a configuration")?;
    let mut program = Command::new(workspace::program("warmroute-collector")?);
    let home = container(&dir.path().join("collector"), &collector)?;
    program.args(words).arg(mounted(&collector, &config)).current_dir(home);
    running.push(spawn("collector", &mut program)?);

    let envoy = service("envoy");
    let home = container(&dir.path().join("envoy"), &envoy)?;
    let words = command(&envoy);
    ensure!(words[0] == "envoy", "{words:?}");
    let mut program = Command::new(envoy_binary::path()?);
    running.push(spawn("envoy", program.args(&words[1..]).current_dir(home))?);

    let client = Client::http1("http://127.0.0.1:10000".to_owned())?;
    let prompt = tokens(1, 512);
    wait::until_ok(DEADLINE, "the services to steer", async || {
        for service in &mut running {
            service.check_alive()?;
        }
        let answer = client.complete(&prompt, 1).await?;
        let decision = answer.decision().unwrap_or_default();
        ensure!(decision.starts_with("steered"), "{} {decision}", answer.status);
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let chat =
        json!({ "model": "sim", "messages": [{ "role": "user", "content": "a message of some length" }] });
    wait::until_ok(DEADLINE, "the services to steer a chat", async || {
        let answer = client.post("/v1/chat/completions").json(&chat).send().await?;
        let decision = answer.headers().get("x-warmroute-decision").context("no decision")?.to_str()?;
        ensure!(decision.starts_with("steered"), "{} {decision}", answer.status());
        Ok(())
    })
    .await?;
    // Beside it, the same engines without warmroute.
    let plain = Client::http1("http://127.0.0.1:10001".to_owned())?;
    let mut served = BTreeSet::new();
    for _ in 0..16 {
        let answer = plain.complete(&prompt, 1).await?;
        ensure!(answer.status.is_success() && answer.decision().is_none(), "{answer:?}");
        served.extend(answer.engine().map(str::to_owned));
    }
    ensure!(served.len() > 1, "{served:?}");
    for service in running.iter_mut().rev() {
        service.stop().await?;
    }
    drop(running);
    dir.remove()
}

/// Lays a service's mounts below `root`; its working directory there.
fn container(root: &Path, service: &Value) -> Result<PathBuf> {
    for (source, target) in mounts(service) {
        let seen = within(root, &target);
        if source.starts_with('.') {
            fs::create_dir_all(seen.parent().context("a folder")?)?;
            symlink(dir().join(source), seen)?;
        } else {
            // The volume that the service `plugin` fills.
            fs::create_dir_all(&seen)?;
            symlink(workspace::plugin()?, seen.join("warmroute.wasm"))?;
        }
    }
    Ok(within(root, service["working_dir"].as_str().context("a folder")?))
}

/// An absolute path of a container, below `root`.
fn within(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
