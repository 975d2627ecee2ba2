//! How much say a figure has that is not new.
//!
//! A figure about others is renewed each second where nothing changes. One that is not loses its say by quarters: its source
//! is gone or cut off, and the work that it tells of ends without a word.

use std::time::Duration;

/// The parts that a say is told in.
pub const QUARTERS: u32 = 4;

/// A figure has all its say for this long.
const FULL: Duration = Duration::from_millis(1_500);

/// After that it loses a quarter at once, and another in each of these.
const QUARTER: Duration = Duration::from_millis(500);

/// What is left of a figure's say at an age, in quarters: all of it at first, nothing after 3 seconds.
pub fn say(age: Duration) -> u32 {
    let Some(over) = age.checked_sub(FULL) else { return QUARTERS };
    let lost = 1 + over.as_millis() / QUARTER.as_millis();
    QUARTERS.saturating_sub(u32::try_from(lost).unwrap_or(QUARTERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_loses_its_say_by_quarters() {
        let said = [0, 1_499, 1_500, 1_999, 2_000, 2_500, 2_999, 3_000, u64::MAX];
        assert_eq!(said.map(|age_ms| say(Duration::from_millis(age_ms))), [4, 4, 3, 3, 2, 1, 1, 0, 0]);
    }
}
