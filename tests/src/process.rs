//! A child process that ends when its handle does, with those that it has started itself.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait;

/// How long a process may take to end after SIGTERM.
pub const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    watchdog: Watchdog,
    log: PathBuf,
}

/// Kills a process should ours die without having stopped it: it waits for the end of a pipe that only we hold open.
#[derive(Debug)]
struct Watchdog(Child);

// === impl Process ===

impl Process {
    /// Starts `command`. Its standard output replaces the file `out`, its standard error is added to the file `log`.
    ///
    /// # Errors
    /// When a file cannot be opened or the program cannot be run.
    pub fn spawn(name: &str, command: &mut Command, out: &Path, log: &Path) -> Result<Self> {
        let stdout = File::create(out).with_context(|| format!("cannot write {}", out.display()))?;
        let stderr = OpenOptions::new().create(true).append(true).open(log);
        let stderr = stderr.with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            // A group of its own, so that what it starts can be ended with it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let watchdog = match Watchdog::over(child.id()) {
            Ok(watchdog) => watchdog,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        Ok(Self { name: name.to_owned(), child, watchdog, log: log.to_path_buf() })
    }

    /// The process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Says so, with the end of its log, when it no longer runs.
    ///
    /// # Errors
    /// When it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait().context("cannot look after a child process")? {
            None => Ok(()),
            Some(status) => bail!("{} has ended with {status}:\n{}", self.name, self.log_tail(20)),
        }
    }

    /// Asks it to end (SIGTERM), and kills it when it has not done so in [`STOP_DEADLINE`].
    ///
    /// # Errors
    /// When it had to be killed.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        if self.is_alive() {
            self.signal(Signal::TERM)?;
            let _ = self.thaw(); // one that stands still does not hear it
        }
        let Self { name, child, .. } = self;
        let what = format!("{name} to end");
        let ended = wait::until(STOP_DEADLINE, what, async || child.try_wait().transpose()).await;
        match ended {
            Ok(status) => {
                self.watchdog.dismiss();
                status.context("cannot wait for a child process")
            }
            Err(error) => {
                self.kill_hard()?;
                Err(error.context(self.log_tail(20)))
            }
        }
    }

    /// Kills it (SIGKILL), with those that it has started, and waits until it is gone.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill_hard(&mut self) -> Result<()> {
        if self.is_alive() {
            self.end_group();
        }
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        self.child.wait().with_context(|| format!("cannot wait for {}", self.name))?;
        self.watchdog.dismiss();
        Ok(())
    }

    /// Stops it where it stands (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Errors
    /// When it has ended.
    pub fn freeze(&mut self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on after [`freeze`](Self::freeze).
    ///
    /// # Errors
    /// When it has ended.
    pub fn thaw(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// What it has written to its log so far, in all its runs.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }

    /// Kills what is left of its group. As long as one of it lives, nobody else is given its number.
    fn end_group(&self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        // Only a child that has not been waited for is sure to own its ID.
        self.check_alive()?;
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill_hard();
        self.watchdog.dismiss();
    }
}

// === impl Watchdog ===

impl Watchdog {
    fn over(id: u32) -> Result<Self> {
        Command::new("/bin/sh")
            .args([
                "-c",
                r#"trap "" INT TERM; read -r _; kill -s KILL -- "-$1""#,
                "watchdog",
                &id.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
            .context("cannot run /bin/sh")
    }

    /// Ends it, as the ID that it was given may soon be another's.
    fn dismiss(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::Process;
    use crate::workspace::ScratchDir;

    fn shell(dir: &ScratchDir, script: &str) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Process::spawn("shell", &mut command, &dir.path().join("out"), &dir.path().join("log")).unwrap()
    }

    #[tokio::test]
    async fn stops_by_sigterm() {
        let dir = ScratchDir::new("stops_by_sigterm").unwrap();
        let mut process = shell(&dir, "exec sleep 60");
        assert!(process.is_alive());
        process.stop().await.unwrap();
        assert!(!process.is_alive());
        dir.remove().unwrap();
    }

    #[tokio::test]
    async fn stops_what_stands_still() {
        let dir = ScratchDir::new("stops_what_stands_still").unwrap();
        let mut process = shell(&dir, "exec sleep 60");
        process.freeze().unwrap();
        process.stop().await.unwrap();
        dir.remove().unwrap();
    }

    #[test]
    fn shows_the_log_of_a_process_that_has_ended() {
        let dir = ScratchDir::new("shows_the_log").unwrap();
        let mut process = shell(&dir, "echo no such model >&2; exit 3");
        while process.is_alive() {}
        let error = process.check_alive().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("no such model"), "{error}");
        dir.remove().unwrap();
    }

    #[test]
    fn takes_those_that_it_has_started_with_it() {
        let dir = ScratchDir::new("takes_those_with_it").unwrap();
        let process = shell(&dir, "sleep 60 & echo $!; wait");
        let out = dir.path().join("out");
        let child = loop {
            if let Ok(child) = std::fs::read_to_string(&out).unwrap().trim().parse::<u32>() {
                break child;
            }
        };
        drop(process);
        // Whoever takes in orphans may not have waited for it yet.
        let gone = || match std::fs::read_to_string(format!("/proc/{child}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        while !gone() {}
        dir.remove().unwrap();
    }

    #[test]
    fn dies_with_its_handle() {
        let dir = ScratchDir::new("dies_with_its_handle").unwrap();
        let process = shell(&dir, "exec sleep 60");
        let id = process.id();
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        dir.remove().unwrap();
    }
}
