//! placeholder
pub mod event;
