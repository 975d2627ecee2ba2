//! How many answers make a state.

/// Failures in a row after which a worker is down: one may be a lost packet.
const FAILURES: u32 = 2;

/// What is thought of a worker.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    healthy: Option<bool>,
    failures: u32,
}

// === impl Verdict ===

impl Verdict {
    /// Takes in an answer. The state, if it is new.
    pub(super) fn heard(&mut self, is_well: bool) -> Option<bool> {
        self.failures = if is_well { 0 } else { self.failures.saturating_add(1) };
        if !is_well && self.failures < FAILURES {
            return None;
        }
        let is_new = self.healthy != Some(is_well);
        self.healthy = Some(is_well);
        is_new.then_some(is_well)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failures_in_a_row_are_down_and_one_success_is_up() {
        let mut verdict = Verdict::default();
        let states =
            [true, false, true, false, false, false, true, true].map(|is_well| verdict.heard(is_well));
        assert_eq!(states, [Some(true), None, None, None, Some(false), None, Some(true), None]);
        let mut verdict = Verdict::default();
        assert_eq!([false, false].map(|is_well| verdict.heard(is_well)), [None, Some(false)]);
    }
}
