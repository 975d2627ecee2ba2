//! Pauses that grow.

use std::time::Duration;

/// The pauses between attempts: each twice the one before, up to a bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

// === impl Backoff ===

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.most);
        pause
    }

    /// It went well: the next pause is the first again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound_and_begin_anew() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(5));
        assert_eq!([0; 4].map(|_| backoff.next().as_secs()), [1, 2, 4, 5]);
        backoff.reset();
        assert_eq!(backoff.next(), seconds(1));
    }
}
