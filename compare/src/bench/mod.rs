//! What each side costs, in turn on the same inputs.

pub mod events;
pub mod lookup;
pub mod memory;
pub mod pages;
pub mod report;
pub mod stopwatch;
pub mod streams;
