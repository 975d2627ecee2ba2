//! The CPU time of processes, as the system has it.

use std::fs;

use anyhow::{Context, Result};

/// CPU time (user and system) that the processes and all their descendants have used so far, in nanoseconds: that of every
/// thread that lives. (`/proc/<pid>/stat` counts in hundredths of a second, too coarse for a window of some seconds.)
///
/// # Errors
/// When one of the processes has ended.
pub(in crate::bench) fn used_ns(pids: &[u32]) -> Result<u64> {
    let mut sum = 0;
    let mut open = pids.to_vec();
    while let Some(pid) = open.pop() {
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.with_context(|| format!("process {pid} has ended"))? {
            let thread = thread?.path();
            // A thread may end between the listing and the reading.
            let Ok(times) = fs::read_to_string(thread.join("schedstat")) else { continue };
            let on_cpu = times.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
            sum += on_cpu.context("/proc/<pid>/task/<tid>/schedstat does not begin with a number")?;
            let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::used_ns;

    #[test]
    fn counts_what_a_child_of_a_process_uses() {
        let script = "while :; do :; done & wait";
        let mut shell = Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
        let begun = Instant::now();
        let mut used = 0;
        while used < 20_000_000 && begun.elapsed() < Duration::from_secs(30) {
            used = used_ns(&[shell.id()]).unwrap();
        }
        // The shell itself waits; its child is ended with it.
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.id())).unwrap();
        for child in children.split_whitespace() {
            Command::new("kill").arg(child).status().unwrap();
        }
        shell.wait().unwrap();
        assert!(used >= 20_000_000, "{used}");
    }

    #[test]
    fn a_process_that_has_ended_is_an_error() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(used_ns(&[child.id()]).is_err());
    }
}
