//! warmroute beside its peers, in one process: that our answers differ from theirs only where we say so (the tests), and
//! what each costs (the program).

pub mod bench;
pub mod blocks;
pub mod dice;
pub mod engine;
pub mod ours;
pub mod theirs;
