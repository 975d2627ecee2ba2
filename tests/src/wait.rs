//! Waiting for something to become true, with a deadline, instead of sleeping and hoping.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(25);

/// Calls `poll` until it answers `Some`.
///
/// # Errors
/// After `deadline`, naming `what` was waited for.
pub async fn until<T>(
    deadline: Duration,
    what: impl Display,
    mut poll: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    until_ok(deadline, what, async || poll().await.ok_or("")).await
}

/// Calls `poll` until it answers `Ok`.
///
/// # Errors
/// After `deadline`, naming `what` was waited for and the last error.
pub async fn until_ok<T, E: Display>(
    deadline: Duration,
    what: impl Display,
    mut poll: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    let mut last = None;
    loop {
        match tokio::time::timeout_at(end, poll()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => last = Some(format!("{error:#}")),
            Err(_) => {
                last.get_or_insert_with(|| "no answer".to_owned());
            }
        }
        if Instant::now() >= end {
            let last = last.filter(|last| !last.is_empty()).map(|last| format!(": {last}"));
            bail!("waited {deadline:?} for {what}{}", last.unwrap_or_default());
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{until, until_ok};

    #[tokio::test(start_paused = true)]
    async fn answers_what_the_poll_found() {
        let mut looks = 0;
        let found = until(Duration::from_secs(1), "the third look", async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found.await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn says_what_it_waited_for_and_the_last_error() {
        let never = until_ok(Duration::from_secs(1), "the collector", async || Err::<(), _>("refused"));
        assert_eq!(never.await.unwrap_err().to_string(), "waited 1s for the collector: refused");
    }
}
