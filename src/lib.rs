//! placeholder
pub mod config;
pub mod prompt;
