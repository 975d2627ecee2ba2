//! How far a worker is with the prompts that it has not answered yet.
//!
//! Nobody tells how much of a prompt is computed until its first token is there: a prompt that is nearly done weighs as much
//! as one that has just begun. But a worker's pace is known from the prompts that it has answered, and so is the time since
//! it answered the last one:
//!
//! ```text
//! left     = queue - min(pace * (now - since), 2 * queue / waiting, queue)                       [tokens]
//! pace     = tokens computed / time with prompts in hand                [of the last answers, the older the less]
//! since    = the last answer, or when the first of the waiting prompts was sent, if that was later
//! ```
//!
//! No more counts as computed ahead of its answer than two prompts of average length (one that is under way is longer than
//! the average, since it takes longer), so a worker that has come to a halt keeps its queue, and a wrong pace does little.
//! Until there has been an answer, nothing does.
//!
//! Where several proxies send to a worker, each one learns the share of its pace that its own prompts get, and takes that off
//! its own part of the queue.

/// What of the older answers is kept at each new one: some ten of them count.
const KEPT: f64 = 0.9;

/// Prompts of average length that count as computed ahead of their answers, at most.
const MOST_AHEAD: u64 = 2;

/// A worker's progress with what one proxy sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Prompts that are not answered yet.
    waiting: u32,
    /// When it last answered a prompt, or was sent the first of those that wait, in microseconds.
    since_us: u64,
    /// Tokens of the last answers' prompts that had to be computed.
    tokens: f64,
    /// How long it had prompts in hand for that, in microseconds.
    busy_us: f64,
}

// === impl Progress ===

impl Progress {
    /// A prompt is sent.
    pub fn sent(&mut self, now_us: u64) {
        if self.waiting == 0 {
            self.since_us = now_us;
        }
        self.waiting = self.waiting.saturating_add(1);
    }

    /// The answer to a prompt begins, of which `tokens` had to be computed.
    pub fn answered(&mut self, tokens: u64, now_us: u64) {
        if self.waiting == 0 {
            return;
        }
        self.waiting -= 1;
        self.tokens = self.tokens * KEPT + tokens as f64;
        self.busy_us = self.busy_us * KEPT + now_us.saturating_sub(self.since_us) as f64;
        self.since_us = now_us;
    }

    /// A prompt will not be answered.
    pub fn given_up(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// What is left to compute of a queue of so many tokens, which are those of all waiting prompts.
    pub fn left(&self, queue: u64, now_us: u64) -> u64 {
        if self.waiting == 0 || self.busy_us <= 0.0 {
            return queue;
        }
        let computed = now_us.saturating_sub(self.since_us) as f64 * self.tokens / self.busy_us;
        let most = (queue / u64::from(self.waiting)).saturating_mul(MOST_AHEAD);
        // A figure beyond all numbers is cut off by the conversion.
        queue.saturating_sub((computed as u64).min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that has computed 1,000 tokens in 100 ms.
    fn of_ten_tokens_a_millisecond() -> Progress {
        let mut progress = Progress::default();
        progress.sent(0);
        progress.answered(1_000, 100_000);
        progress
    }

    #[test]
    fn nothing_is_taken_off_before_the_first_answer() {
        let mut progress = Progress::default();
        progress.sent(0);
        assert_eq!(progress.left(1_000, 10_000_000), 1_000);
    }

    #[test]
    fn a_prompt_shrinks_at_the_pace_of_those_before_it_from_when_it_was_sent() {
        let mut progress = of_ten_tokens_a_millisecond();
        progress.sent(500_000);
        assert_eq!(progress.left(1_000, 500_000), 1_000);
        assert_eq!(progress.left(1_000, 530_000), 700);
        assert_eq!(progress.left(1_000, 600_000), 0);
    }

    #[test]
    fn the_next_prompt_begins_when_the_one_before_it_is_answered() {
        let mut progress = of_ten_tokens_a_millisecond();
        progress.sent(500_000);
        progress.sent(510_000);
        progress.answered(1_000, 600_000);
        assert_eq!(progress.left(1_000, 640_000), 600);
    }

    #[test]
    fn a_worker_at_a_halt_keeps_all_but_two_prompts_of_its_queue() {
        let mut progress = of_ten_tokens_a_millisecond();
        (0..4).for_each(|_| progress.sent(500_000));
        assert_eq!(progress.left(4_000, 3_600_000_000), 2_000);
        assert_eq!(progress.left(4_000, u64::MAX), 2_000);
    }

    #[test]
    fn the_pace_follows_a_worker_that_becomes_slower() {
        let mut progress = of_ten_tokens_a_millisecond();
        for second in 1..100 {
            progress.sent(second * 1_000_000);
            progress.answered(1_000, second * 1_000_000 + 500_000);
        }
        progress.sent(200_000_000);
        let left = progress.left(1_000, 200_100_000);
        assert!((795..=805).contains(&left), "{left}");
    }

    #[test]
    fn prompts_that_are_given_up_count_no_longer_and_leave_no_debt() {
        let mut progress = of_ten_tokens_a_millisecond();
        progress.sent(500_000);
        progress.given_up();
        progress.given_up();
        progress.answered(1, 600_000);
        assert_eq!(progress, of_ten_tokens_a_millisecond().with_since(500_000));
        progress.sent(900_000);
        assert_eq!(progress.left(1_000, 950_000), 500);
    }

    #[test]
    fn a_clock_that_goes_back_and_answers_in_no_time_do_no_harm() {
        let mut progress = Progress::default();
        progress.sent(1_000);
        progress.answered(u64::MAX, 0);
        progress.sent(1_000);
        assert_eq!(progress.left(10, 0), 10);
        progress.answered(u64::MAX, 1_001);
        progress.sent(2_000);
        assert_eq!(progress.left(10, u64::MAX), 0);
        assert_eq!(progress.left(0, u64::MAX), 0);
    }

    impl Progress {
        fn with_since(self, since_us: u64) -> Self {
            Self { since_us, ..self }
        }
    }
}
