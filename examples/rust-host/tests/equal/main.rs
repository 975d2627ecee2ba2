//! The same steps through the component and natively give the same values, to the last bit.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod choices;
mod native;
mod snapshots;
mod steps;
