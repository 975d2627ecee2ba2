//! Which workers the index may be believed about.
//!
//! Where an engine says how much of a prompt it had cached, that is held against what the index said (see
//! [`Prediction`]). A worker that keeps disproving the index loses its credit: it is chosen as if it held nothing, for a
//! while. Then it is on trial: one disproof more and it is distrusted again, for twice as long, up to a limit; a few
//! agreements in a row, and it is believed as before.

use std::collections::HashMap;
use std::net::SocketAddr;

/// A worker loses its credit once this many of its last [`WINDOW`] comparisons disprove the index.
const DISPROOFS: u32 = 4;

/// Comparisons that count.
const WINDOW: u32 = 8;

/// Agreements in a row that end a trial.
const AGREEMENTS: u32 = 3;

/// How long a worker is distrusted at first, and at most, in microseconds.
const FIRST_US: u64 = 5_000_000;
const LONGEST_US: u64 = 80_000_000;

/// What a worker was said to hold of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Blocks.
    pub blocks: u64,
    /// Whether it was said to hold no more: if not, only fewer blocks are an error.
    pub exact: bool,
}

/// How a prediction came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// In which way.
    pub outcome: Outcome,
    /// By how many blocks.
    pub error_blocks: u64,
}

/// In which way a prediction came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The worker had what it was said to have.
    Right,
    /// It had fewer blocks.
    Over,
    /// It had more.
    Under,
}

/// What has become of a worker's credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is lost for now.
    Lost,
    /// It is back for good.
    Regained,
}

/// The workers that were compared, in one VM.
#[derive(Debug, Default)]
pub struct Trust(HashMap<SocketAddr, Record>);

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// The last comparisons, the newest in the lowest bit; 1 is a disproof.
    recent: u32,
    /// Until when it is distrusted, in microseconds since 1970.
    until_us: u64,
    /// How often in a row it was; 0 if it is not on trial.
    trials: u32,
    /// Agreements in a row while it is on trial.
    agreements: u32,
}

// === impl Prediction ===

impl Prediction {
    /// Holds it against what the worker says that it had.
    pub fn compare(self, actual_blocks: u64) -> Verdict {
        let over = self.blocks.saturating_sub(actual_blocks);
        let under = if self.exact { actual_blocks.saturating_sub(self.blocks) } else { 0 };
        let outcome = match (over, under) {
            (1.., _) => Outcome::Over,
            (_, 1..) => Outcome::Under,
            _ => Outcome::Right,
        };
        Verdict { outcome, error_blocks: over.max(under) }
    }

    /// Whether a worker that had so many blocks fewer disproves the index: more than an eighth of what was said, and more
    /// than one block. An eviction on the way there is no lie.
    fn is_disproved(self, verdict: Verdict) -> bool {
        verdict.outcome == Outcome::Over && verdict.error_blocks > (self.blocks / 8).max(1)
    }
}

// === impl Trust ===

impl Trust {
    /// A worker's answer was compared. A prediction of nothing says nothing about the index.
    pub fn learn(
        &mut self,
        worker: SocketAddr,
        prediction: Prediction,
        verdict: Verdict,
        now_us: u64,
    ) -> Option<Change> {
        if prediction.blocks == 0 {
            return None;
        }
        let disproved = prediction.is_disproved(verdict);
        if !disproved && !self.0.contains_key(&worker) {
            return None;
        }
        let record = self.0.entry(worker).or_default();
        // What was under way when the credit was lost says nothing new.
        if record.until_us > now_us {
            return None;
        }
        let change = record.learn(disproved, now_us);
        if record.recent == 0 && record.trials == 0 {
            self.0.remove(&worker);
        }
        change
    }

    /// Whether a worker is taken to hold nothing now.
    pub fn is_distrusted(&self, worker: SocketAddr, now_us: u64) -> bool {
        !self.0.is_empty() && self.0.get(&worker).is_some_and(|record| record.until_us > now_us)
    }

    /// Whether a worker has disproved the index lately: it is looked at closely.
    pub fn is_suspect(&self, worker: SocketAddr) -> bool {
        !self.0.is_empty() && self.0.contains_key(&worker)
    }

    /// Whether no worker is distrusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

// === impl Record ===

impl Record {
    fn learn(&mut self, disproved: bool, now_us: u64) -> Option<Change> {
        self.recent = (self.recent << 1 | u32::from(disproved)) & ((1 << WINDOW) - 1);
        if self.trials > 0 {
            if disproved {
                return Some(self.distrust(now_us));
            }
            self.agreements += 1;
            if self.agreements >= AGREEMENTS {
                *self = Self::default();
                return Some(Change::Regained);
            }
            return None;
        }
        (self.recent.count_ones() >= DISPROOFS).then(|| self.distrust(now_us))
    }

    fn distrust(&mut self, now_us: u64) -> Change {
        let pause_us = FIRST_US.saturating_mul(1 << self.trials.min(20)).min(LONGEST_US);
        *self = Self {
            recent: 0,
            until_us: now_us.saturating_add(pause_us),
            trials: self.trials.saturating_add(1),
            agreements: 0,
        };
        Change::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn worker() -> SocketAddr {
        ([10, 0, 0, 1], 1).into()
    }

    fn compare(trust: &mut Trust, predicted: u64, actual: u64, now_us: u64) -> Option<Change> {
        let prediction = Prediction { blocks: predicted, exact: true };
        trust.learn(worker(), prediction, prediction.compare(actual), now_us)
    }

    #[test]
    fn a_prediction_is_right_too_high_or_too_low_and_a_bound_is_never_too_low() {
        let outcome = |blocks, exact, actual| {
            let verdict = Prediction { blocks, exact }.compare(actual);
            (verdict.outcome, verdict.error_blocks)
        };
        assert_eq!(outcome(10, true, 10), (Outcome::Right, 0));
        assert_eq!(outcome(10, true, 4), (Outcome::Over, 6));
        assert_eq!(outcome(10, true, 12), (Outcome::Under, 2));
        assert_eq!(outcome(10, false, 12), (Outcome::Right, 0));
        assert_eq!(outcome(10, false, 9), (Outcome::Over, 1));
    }

    #[test]
    fn four_disproofs_of_eight_lose_the_credit_for_five_seconds() {
        let mut trust = Trust::default();
        for (actual, change) in
            [(0, None), (100, None), (0, None), (100, None), (0, None), (0, Some(Change::Lost))]
        {
            assert_eq!(compare(&mut trust, 100, actual, SECOND), change);
        }
        assert!(trust.is_distrusted(worker(), 6 * SECOND - 1) && !trust.is_distrusted(worker(), 6 * SECOND));
    }

    #[test]
    fn small_errors_too_low_predictions_and_predictions_of_nothing_lose_nothing() {
        let mut trust = Trust::default();
        for _ in 0..100 {
            assert_eq!(compare(&mut trust, 100, 88, SECOND), None);
            assert_eq!(compare(&mut trust, 1, 0, SECOND), None);
            assert_eq!(compare(&mut trust, 10, 50, SECOND), None);
            assert_eq!(compare(&mut trust, 0, 50, SECOND), None);
        }
        assert!(trust.is_empty());
    }

    #[test]
    fn who_agrees_again_is_believed_again_and_who_does_not_is_distrusted_ever_longer() {
        let mut trust = Trust::default();
        (0..4).for_each(|_| _ = compare(&mut trust, 100, 0, 0));
        let (mut now_us, mut pauses) = (0, vec![]);
        for _ in 0..7 {
            let start_us = now_us;
            while trust.is_distrusted(worker(), now_us) {
                now_us += SECOND;
            }
            pauses.push((now_us - start_us) / SECOND);
            assert_eq!(compare(&mut trust, 100, 0, now_us), Some(Change::Lost));
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 80, 80]);
        now_us += 80 * SECOND;
        assert_eq!(compare(&mut trust, 100, 100, now_us), None);
        assert_eq!(compare(&mut trust, 100, 100, now_us), None);
        assert_eq!(compare(&mut trust, 100, 100, now_us), Some(Change::Regained));
        assert!(!trust.is_suspect(worker()));
        // It starts anew: one disproof is none.
        assert_eq!(compare(&mut trust, 100, 0, now_us), None);
    }

    #[test]
    fn workers_that_agree_take_no_memory() {
        let mut trust = Trust::default();
        assert_eq!(compare(&mut trust, 100, 0, 0), None);
        assert!(trust.is_suspect(worker()));
        (0..8).for_each(|_| _ = compare(&mut trust, 100, 100, 0));
        assert!(trust.is_empty());
    }
}
